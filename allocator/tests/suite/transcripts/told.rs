//! What an operation did, as it is written: addresses from the first one of the device on, amounts exactly.

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::{DeviceAddr, StreamId};

use super::program::Program;

impl Program {
    /// An address as it is written: from the first one of the device on.
    pub fn place(&self, addr: DeviceAddr) -> String {
        match addr {
            DeviceAddr::NULL => "null".to_owned(),
            addr => format!("at +{}", written(addr.0 - self.base.0)),
        }
    }

    /// A text with addresses and amounts as they are written here.
    pub fn relative(&self, text: &str) -> String {
        let word = |word: &str| {
            let end = word.len() - word.trim_end_matches(['.', ',', ':']).len();
            let (word, end) = word.split_at(word.len() - end);
            let hex = word.strip_prefix("0x");
            let addr = hex.and_then(|hex| u64::from_str_radix(hex, 16).ok());
            let shown = match (addr, word.parse::<u64>(), word.strip_prefix("stream=")) {
                (Some(addr), ..) if addr >= self.base.0 => {
                    format!("+{}", written(addr - self.base.0))
                }
                (_, Ok(bytes), _) => written(bytes),
                (.., Some("(nil)")) => "stream 0".to_owned(),
                (.., Some(handle)) => {
                    let handle = u64::from_str_radix(&handle[2..], 16).unwrap();
                    name_of(StreamId(handle))
                }
                _ => word.to_owned(),
            };
            shown + end
        };
        text.split_whitespace()
            .map(word)
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The driver calls since the last operation.
    pub fn calls(&mut self) -> Vec<String> {
        let log = self.subject.any().driver_mut().take_log();
        let calls: Vec<String> = log
            .iter()
            .map(|call| self.relative(&call.to_string()))
            .collect();
        if !self.names_only {
            return calls.iter().map(|call| format!("> {call}")).collect();
        }
        let names = calls
            .iter()
            .map(|call| call.split(' ').next().unwrap_or_default());
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for name in names {
            match counts.iter_mut().find(|(counted, _)| *counted == name) {
                Some((_, count)) => *count += 1,
                None => counts.push((name, 1)),
            }
        }
        let counts = counts
            .into_iter()
            .map(|(name, count)| format!("> {name} x {count}"));
        counts.collect()
    }

    /// The IDs of live addresses, in their order.
    pub fn named(&self, addresses: &[DeviceAddr]) -> String {
        let names = addresses.iter().map(|addr| {
            let known = self.live.iter().find(|(_, at)| *at == addr);
            known.map_or_else(|| self.place(*addr), |(id, _)| id.clone())
        });
        names.collect::<Vec<_>>().join(" ")
    }

    pub fn blocks(&mut self) -> Vec<String> {
        let segments = self.subject.any().segments();
        let segments = segments.iter().map(|segment| {
            let blocks = segment
                .blocks
                .iter()
                .map(|block| {
                    let state = match block.state.name() {
                        "active_allocated" => "",
                        "active_pending_free" => " waits",
                        _ => " free",
                    };
                    format!("{}{state}", written(block.size))
                })
                .collect::<Vec<_>>()
                .join(" | ");
            let owner = match segment.pool {
                MempoolId::DEFAULT => name_of(segment.stream),
                pool => format!("{} in pool {pool}", name_of(segment.stream)),
            };
            let place = self.place(segment.address);
            format!("{place}, {owner}: {blocks}")
        });
        segments.collect()
    }
}

pub fn name_of(stream: StreamId) -> String {
    match stream.0 % StreamId::nth(1).0 {
        0 => format!("stream {}", stream.index()),
        _ => format!("stream {:#x}", stream.0),
    }
}

/// An amount of memory as the operations have it, exactly.
pub fn written(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match bytes {
        0..KIB => bytes.to_string(),
        _ if bytes.is_multiple_of(MIB) => format!("{}MiB", bytes / MIB),
        MIB.. => format!("{}MiB+{}", bytes / MIB, written(bytes % MIB)),
        _ if bytes.is_multiple_of(KIB) => format!("{}KiB", bytes / KIB),
        _ => bytes.to_string(),
    }
}
