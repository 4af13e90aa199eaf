//! Figures as people read them.

/// Bytes in the unit that suits them.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match UNITS.into_iter().find(|&(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => {
            let decimals = if shift >= 30 { 2 } else { 1 };
            format!(
                "{:.decimals$} {unit}",
                bytes as f64 / (1_u64 << shift) as f64
            )
        }
        None => format!("{bytes} bytes"),
    }
}

/// A part of a whole, in percent.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", part as f64 / whole.max(1) as f64 * 100.0)
}

/// How settings are typed.
#[must_use]
pub fn typed(conf: &str) -> String {
    match conf {
        "" => "unset PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        conf => format!("PYTORCH_CUDA_ALLOC_CONF={conf}"),
    }
}

/// `1 time`, `2 times`.
#[must_use]
pub fn count(n: u64, one: &str) -> String {
    match n {
        1 => format!("1 {one}"),
        n => format!("{n} {one}s"),
    }
}
