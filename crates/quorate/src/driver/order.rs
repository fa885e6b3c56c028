//! The order of the nodes for one resource. Every worker computes the same order, so that all of them ask the
//! same majority first. Otherwise the counters of the nodes would differ, and each acquire would need a
//! *raise*.

/// Returns a hash of a text: FNV-1a. The hash is the same in every process and every version.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the nodes in the order for the resource `key`, by rendezvous hashing. `nodes` are the hashes of
/// their names. The result does not depend on the order of `nodes`. If one node is removed, the others keep
/// their order.
pub(crate) fn rendezvous(key: &str, nodes: &[u64]) -> Vec<usize> {
    let key = hash(key);
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_unstable_by_key(|&node| (std::cmp::Reverse(mix(key ^ nodes[node])), node));
    order
}

/// Spreads the differences of two inputs over all bits (the finalizer of SplitMix64).
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_names_and_spreads_the_resources() {
        let names = ["a:6379", "b:6379", "c:6379", "d:6379", "e:6379"];
        let hashes = names.map(hash);
        let mut firsts = [0; 5];
        for number in 0..1_000 {
            let key = format!("invoice-{number}");
            let order = rendezvous(&key, &hashes);
            order[..3].iter().for_each(|&node| firsts[node] += 1);
            let mut turned = hashes;
            turned.rotate_left(2);
            let again: Vec<usize> = rendezvous(&key, &turned).iter().map(|node| (node + 2) % 5).collect();
            assert_eq!(order, again, "the order of the list does not matter");
            let without: Vec<usize> = rendezvous(&key, &hashes[..4]);
            let kept: Vec<usize> = order.into_iter().filter(|&node| node != 4).collect();
            assert_eq!(without, kept);
        }
        assert!(firsts.iter().all(|&count| (550..650).contains(&count)), "{firsts:?}");
    }
}
