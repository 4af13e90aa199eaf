//! Groups of tensors that live across phases, and their fusion.
//!
//! All tensors allocated in one phase and freed in another live at the same time in between, so that a group
//! can be stacked without gaps. Where one group ends while another begins, tensors of the smaller one can
//! take the ranges that tensors of the larger one leave. Whether that pays is decided by the *time-memory
//! product*: the fraction of a group's rectangle of bytes and time that its tensors fill.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::layers::Tensor;
use super::skyline::Skyline;
use super::time::{Life, heap_order};

/// Tensors that are placed as a unit.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// From the first request to the last free.
    pub(super) life: Life,
    pub(super) bytes: u64,
    /// Each with its offset in the group.
    pub(super) tensors: Vec<(u64, Tensor)>,
}

impl Group {
    /// Stacks tensors, the longest-lived at the bottom. Returns `None` for no tensors.
    pub(super) fn stacked(tensors: &[Tensor]) -> Option<Self> {
        let mut tensors = tensors.to_vec();
        tensors.sort_by_key(|tensor| Reverse(tensor.life.length()));
        let mut skyline = Skyline::flat(0);
        let place = |tensor: &Tensor| {
            let offset = skyline.stack(tensor.life, tensor.bytes, u64::MAX)?;
            Some((offset, *tensor))
        };
        let lives = tensors.iter().map(|tensor| tensor.life);
        Some(Self {
            life: lives.reduce(Life::around)?,
            bytes: tensors.iter().map(|tensor| tensor.bytes).sum(),
            tensors: tensors.iter().filter_map(place).collect(),
        })
    }

    /// The time-memory product, at most 1.
    pub(super) fn density(&self) -> f64 {
        let area = |bytes: u64, life: Life| u128::from(bytes) * u128::from(life.length());
        let tensors = self.tensors.iter();
        let filled: u128 = tensors
            .map(|(_, tensor)| area(tensor.bytes, tensor.life))
            .sum();
        filled as f64 / area(self.bytes, self.life) as f64
    }

    fn members(&self) -> impl Iterator<Item = Tensor> {
        self.tensors.iter().map(|&(_, tensor)| tensor)
    }
}

/// Returns the groups by size, the largest first.
pub(super) fn by_size(groups: Vec<Group>) -> impl Iterator<Item = Vec<Group>> {
    let mut sizes: BTreeMap<Reverse<u64>, Vec<Group>> = BTreeMap::new();
    for group in groups {
        sizes.entry(Reverse(group.bytes)).or_default().push(group);
    }
    let alike = sizes.into_values();
    alike.map(|alike| heap_order(alike, |group| group.life.from))
}

/// Fuses groups, the largest first, each with the first larger group for which fusion pays. A group is
/// fused at most once.
pub(super) fn fused(groups: Vec<Group>) -> Vec<Group> {
    let mut larger: Vec<Group> = Vec::new();
    let mut fused = Vec::new();
    for alike in by_size(groups) {
        let mut alone = Vec::new();
        for group in alike {
            let mut partners = larger.iter().enumerate();
            let found = partners.find_map(|(index, one)| Some((index, fuse(one, &group)?)));
            if let Some((index, results)) = found {
                larger.remove(index);
                fused.extend(results);
            } else {
                alone.push(group);
            }
        }
        larger.append(&mut alone);
    }
    fused.append(&mut larger);
    fused
}

/// Places tensors of the smaller group where those of the larger one do not live any more, or do not live
/// yet. Returns a group of the larger one's size and the tensors that did not fit, or `None` if the groups
/// are not neighbours in time or become no denser.
fn fuse(larger: &Group, smaller: &Group) -> Option<Vec<Group>> {
    let is_former = larger.life.from <= smaller.life.from;
    let (former, latter) = if is_former {
        (larger.life, smaller.life)
    } else {
        (smaller.life, larger.life)
    };
    if !former.overlaps(latter) || former.until > latter.until {
        return None;
    }
    // If the larger group is the latter, time is reversed.
    let horizon = latter.until;
    let life = |tensor: &Tensor| {
        if is_former {
            tensor.life
        } else {
            tensor.life.mirrored(horizon)
        }
    };

    let mut skyline = Skyline::flat(0);
    let mut hosts: Vec<Tensor> = larger.members().collect();
    hosts.sort_by_key(|host| Reverse(life(host).until));
    let mut placed = Vec::with_capacity(hosts.len() + smaller.tensors.len());
    for host in hosts {
        placed.push((skyline.stack(life(&host), host.bytes, larger.bytes)?, host));
    }
    let hosts = placed.clone();

    let mut guests: Vec<Tensor> = smaller.members().collect();
    guests.sort_by_key(|guest| life(guest).from);
    let mut at = 0;
    while !guests.is_empty() {
        let above = hosts.partition_point(|&(offset, _)| offset <= at);
        let (_, host) = hosts.get(above.checked_sub(1)?)?;
        let seat = |(index, guest): (usize, &Tensor)| {
            let comes_after = life(guest).from >= life(host).until;
            if !comes_after || at + guest.bytes > larger.bytes {
                return None;
            }
            let offset = skyline.stack(life(guest), guest.bytes, larger.bytes)?;
            Some((index, offset))
        };
        if let Some((index, offset)) = guests.iter().enumerate().find_map(seat) {
            let guest = guests.remove(index);
            at = offset + guest.bytes;
            placed.push((offset, guest));
        } else if let Some(&(offset, _)) = hosts.get(above) {
            at = offset;
        } else {
            break;
        }
    }

    let lives = placed.iter().map(|(_, tensor)| tensor.life);
    let together = Group {
        life: lives.reduce(Life::around)?,
        bytes: larger.bytes,
        tensors: placed,
    };
    let rest = Group::stacked(&guests);
    // The rest counts as much as the fused group.
    let density = together.density() * rest.as_ref().unwrap_or(&together).density();
    let is_denser = density > larger.density() * smaller.density();
    is_denser.then(|| [Some(together), rest].into_iter().flatten().collect())
}
