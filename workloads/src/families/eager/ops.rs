//! The operators.
//!
//! Arguments that are given away go when the operator is done, as the temporaries of an expression
//! do.

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
