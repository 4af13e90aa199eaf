//! The operators.
//!
//! Arguments passed by value are dropped after the operator, like the temporaries of an expression.

pub(crate) mod arithmetic;
pub(crate) mod attention;
pub(crate) mod embedding;
pub(crate) mod image;
pub(crate) mod index;
pub(crate) mod linear;
pub(crate) mod loss;
pub(crate) mod norm;
pub(crate) mod reduce;
pub(crate) mod shape;
