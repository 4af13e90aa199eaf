//! The mechanisms that can be switched off, to measure what each contributes.

use std::str::FromStr;

/// Which mechanisms are on. All are, unless the setting `without` names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mechanisms {
    /// Free memory serves a request together with other free memory, instead of new memory alone.
    pub(super) views: bool,
    /// A block in a view can begin and end within a unit.
    pub(super) ends: bool,
    /// A stream uses memory that another one freed.
    pub(super) sharing: bool,
    /// Small requests are packed into slabs.
    pub(super) slabs: bool,
    /// Units grow with the memory of the program.
    pub(super) large_units: bool,
}

impl Default for Mechanisms {
    fn default() -> Self {
        Self {
            views: true,
            ends: true,
            sharing: true,
            slabs: true,
            large_units: true,
        }
    }
}

/// Reads the mechanisms to switch off, as in `views+slabs`.
impl FromStr for Mechanisms {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut mechanisms = Self::default();
        for name in text.split('+') {
            let mechanism = match name {
                "views" => &mut mechanisms.views,
                "ends" => &mut mechanisms.ends,
                "sharing" => &mut mechanisms.sharing,
                "slabs" => &mut mechanisms.slabs,
                "large_units" => &mut mechanisms.large_units,
                _ => {
                    return Err(format!(
                        "expected views, ends, sharing, slabs or large_units, several joined by '+', \
                         not '{name}'"
                    ));
                }
            };
            *mechanism = false;
        }
        Ok(mechanisms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_off() {
        let expected = Mechanisms {
            ends: false,
            slabs: false,
            ..Mechanisms::default()
        };
        assert_eq!("ends+slabs".parse(), Ok(expected));
        let error = "ends+".parse::<Mechanisms>().unwrap_err();
        assert!(error.contains("not ''"), "{error}");
    }
}
