//! The shell command that applies settings.

use coalesce_alloc::Settings;
use coalesce_alloc::release::v2;
use coalesce_workloads::formats::snapshot::release::Releases;

/// The command that replaces the settings `present` of a program that runs under one of `releases`.
///
/// Each release reads the variable that the command sets. Where it would prefer another that is set now, that one is
/// removed.
#[must_use]
pub fn command(conf: &str, present: &str, releases: Releases) -> String {
    // Every release reads the variable of the oldest.
    let oldest = releases.from.filter(|_| releases != Releases::REFERENCE);
    let (documented, preferred) = Settings::variables(oldest.unwrap_or(v2(6)));
    let set = format!("export {documented}={}", shell_quoted(conf));
    match (conf, present, preferred) {
        ("", _, preferred) => {
            let all = preferred.iter().take(1).chain([&documented]);
            format!("unset {}", all.copied().collect::<Vec<_>>().join(" "))
        }
        (_, "", _) | (_, _, []) => set,
        (_, _, [first, ..]) => format!("unset {first}; {set}"),
    }
}

fn shell_quoted(conf: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_:,.%+-/@".contains(c);
    if !conf.chars().all(is_plain) {
        format!("'{}'", conf.replace('\'', "'\\''"))
    } else {
        conf.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_the_one_that_the_release_reads() {
        let known = |minor| Releases::given(v2(minor));
        let lines = [
            command("a:1", "", Releases::REFERENCE),
            command("a:1", "b:1", known(9)),
            command("", "b:1", known(9)),
            command("a:1", "", known(10)),
            command("a:1", "b:1", known(10)),
            command("", "b:1", known(10)),
            command("roundup_power2_divisions:[256:1,>:2]", "", known(9)),
            command("a_b:1.5,c%+-/@", "", known(9)),
            command("it's", "", known(9)),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r"
        export PYTORCH_CUDA_ALLOC_CONF=a:1
        export PYTORCH_CUDA_ALLOC_CONF=a:1
        unset PYTORCH_CUDA_ALLOC_CONF
        export PYTORCH_ALLOC_CONF=a:1
        unset PYTORCH_CUDA_ALLOC_CONF; export PYTORCH_ALLOC_CONF=a:1
        unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
        export PYTORCH_CUDA_ALLOC_CONF='roundup_power2_divisions:[256:1,>:2]'
        export PYTORCH_CUDA_ALLOC_CONF=a_b:1.5,c%+-/@
        export PYTORCH_CUDA_ALLOC_CONF='it'\''s'
        ");
    }
}
