//! Which settings a build of PyTorch has.

use coalesce_alloc::release::{Release, v2};
use coalesce_workloads::formats::snapshot::release::{ROCM_EXPANDABLE, Releases};

use super::message::Platform;

/// Whether expandable segments can be set, and how.
pub(super) struct Expandable {
    /// The command that sets them; `None` if the build has none.
    pub command: Option<String>,
    /// What must be known about them there, one sentence each.
    pub remarks: Vec<String>,
}

/// What is reported about expandable segments on ROCm.
pub(crate) const ROCM_WARNING: &str = "On ROCm, hangs and crashes under expandable segments are reported (pytorch#192259, pytorch#187343): try them on a short run first.";

/// A platform with expandable segments: the variable that sets them, the first release that has them, and a warning.
type Support = (Platform, &'static str, Release, Option<&'static str>);

/// Sources: pytorch#96995 for CUDA, pytorch#177974 for ROCm, pytorch#166292 for XPU, and the documentation of torch_npu for NPU.
/// Releases for ROCm before pytorch#177974 ignore the setting with a warning.
const SUPPORTED: [Support; 4] = [
    (Platform::Cuda, "PYTORCH_CUDA_ALLOC_CONF", v2(1), None),
    (
        Platform::Rocm,
        "PYTORCH_HIP_ALLOC_CONF",
        ROCM_EXPANDABLE,
        Some(ROCM_WARNING),
    ),
    (Platform::Xpu, "PYTORCH_ALLOC_CONF", v2(10), None),
    (Platform::Npu, "PYTORCH_NPU_ALLOC_CONF", v2(1), None),
];

/// The release from which on the variable has the same name on all platforms.
const RENAMED: Release = v2(10);

impl Expandable {
    pub fn of(platform: Platform, releases: Releases) -> Self {
        let none = |remark: String| Self {
            command: None,
            remarks: vec![remark],
        };
        let name = platform.name();
        let mut supported = SUPPORTED.into_iter();
        let Some((_, own, since, warning)) = supported.find(|one| one.0 == platform) else {
            return none(match platform {
                Platform::Mps => {
                    "On MPS, PyTorch has no settings against fragmentation.".to_owned()
                }
                _ => format!(
                    "Whether a release of PyTorch has expandable segments on {name} is not known here."
                ),
            });
        };
        if releases.before.is_some_and(|before| before <= since) {
            return none(format!(
                "Expandable segments came with PyTorch {since} on {name}, and the message is worded as by {}.{}",
                releases.range(),
                if platform == Platform::Cuda {
                    " Before, max_split_size_mb is the setting to try (from 1.9 on); a newer release is better."
                } else {
                    ""
                }
            ));
        }
        let mut remarks = Vec::new();
        if releases.from.is_none_or(|from| from < since) && since > v2(1) {
            remarks.push(format!(
                "On {name}, PyTorch {since} or later is needed; earlier releases ignore the setting with a warning."
            ));
        }
        remarks.extend(warning.map(str::to_owned));
        let is_renamed = releases.from.is_some_and(|from| from >= RENAMED);
        let variable = match platform {
            Platform::Npu => own,
            _ if is_renamed => "PYTORCH_ALLOC_CONF",
            _ => own,
        };
        Self {
            command: Some(format!("export {variable}=expandable_segments:True")),
            remarks,
        }
    }
}
