//! Enums whose values have names.

/// Declares an enum: each line is a value and its name. All are in `ALL`, `name` returns the name, and `named` the value
/// with a name.
#[doc(hidden)]
#[macro_export]
macro_rules! named {
    (
        $(#[$about:meta])*
        $visibility:vis enum $enum:ident {
            $($(#[$about_value:meta])* $value:ident = $name:literal,)*
        }
    ) => {
        $(#[$about])*
        $visibility enum $enum {
            $($(#[$about_value])* $value,)*
        }

        impl $enum {
            /// All values.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$value),*];

            /// Returns the name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)*
                }
            }

            /// Returns the value with this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }
    };
}
