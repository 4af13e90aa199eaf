//! Places of the program that request memory.

use std::collections::HashMap;

use coalesce_bench::text::amount;
use coalesce_workloads::formats::snapshot::{Stack, StackId};

/// The function of holders that are told apart by the size of their requests, because nothing else is known.
pub(super) const OF_SIZE: &str = "requests of ";

/// A place of the program.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Site {
    /// The file without its folders, and the line; empty if no stack names one.
    pub place: String,
    pub file: String,
    pub function: String,
    /// The line of a library, or of one of PyTorch's modules, through which the program requested the memory, and its
    /// function.
    pub library: Option<String>,
    pub is_of_backward: bool,
}

/// Requests of less are not told apart by size.
const SMALL: u64 = 1 << 20;

/// Where an allocation comes from.
pub(crate) struct Origin<'a> {
    pub bytes: u64,
    pub tag: &'a str,
    pub stack: Option<(StackId, &'a Stack)>,
    pub is_of_backward: bool,
}

impl Origin<'_> {
    pub fn operator(&self) -> String {
        let operator = self.stack.and_then(|(_, stack)| stack.operator());
        operator.unwrap_or_default().to_owned()
    }

    fn site(&self) -> Site {
        let Some((_, stack)) = self.stack else {
            let function = match self.tag {
                "" if self.bytes < SMALL => format!("{OF_SIZE}less than {}", amount(SMALL)),
                "" => format!("{OF_SIZE}{}", amount(self.bytes)),
                tag => tag.to_owned(),
            };
            return Site {
                function,
                ..Site::default()
            };
        };
        let Some(frame) = stack.blamed() else {
            return Site {
                function: stack.operator().unwrap_or_default().to_owned(),
                ..Site::default()
            };
        };
        let library = stack.library().or_else(|| stack.module());
        Site {
            place: frame.place(),
            file: frame.filename.clone(),
            function: frame.name.clone(),
            library: library.map(|frame| format!("{} {}", frame.place(), frame.name)),
            is_of_backward: self.is_of_backward,
        }
    }
}

/// The places, without duplicates.
#[derive(Default)]
pub(crate) struct Sites {
    sites: Vec<Site>,
    by_content: HashMap<Site, u32>,
    by_stack: HashMap<(StackId, bool), u32>,
}

impl Sites {
    /// The place with a number.
    pub fn get(&self, number: u32) -> Site {
        let site = self.sites.get(number as usize);
        site.cloned().unwrap_or_default()
    }

    /// The number of the place of an origin.
    pub fn number(&mut self, origin: &Origin<'_>) -> u32 {
        let known = origin.stack.map(|(id, _)| (id, origin.is_of_backward));
        if let Some(&number) = known.and_then(|key| self.by_stack.get(&key)) {
            return number;
        }
        let site = origin.site();
        let next = u32::try_from(self.sites.len()).unwrap_or(u32::MAX);
        let number = *self.by_content.entry(site.clone()).or_insert(next);
        if number == next {
            self.sites.push(site);
        }
        if let Some(key) = known {
            self.by_stack.insert(key, number);
        }
        number
    }
}
