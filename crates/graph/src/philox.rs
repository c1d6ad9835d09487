//! Philox4x32-10: random numbers addressed by a key and a position instead of drawn from a stream.
//!
//! Source: Salmon, Moraes, Dror, Shaw, *Parallel Random Numbers: As Easy as 1, 2, 3*, SC 2011.
//! A value depends on `(key, global element index)` alone, so it is the same in every layout.

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The four words at position `counter` of the sequence of `key`.
#[inline(always)]
pub fn philox4x32(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let (mut k, mut c) = (key, counter);
    for round in 0..ROUNDS {
        if round > 0 {
            k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
        }
        let p0 = u64::from(MULTIPLIER[0]) * u64::from(c[0]);
        let p1 = u64::from(MULTIPLIER[1]) * u64::from(c[2]);
        c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
    }
    c
}

/// The key of a random site: the run's `seed`, the `name` of the parameter or site, and the `step`.
///
/// The name is hashed with 64-bit FNV-1a; the three parts are mixed by Philox itself.
pub fn site_key(seed: u64, name: &str, step: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let key = [seed as u32, (seed >> 32) as u32];
    let counter = [hash as u32, (hash >> 32) as u32, step as u32, (step >> 32) as u32];
    let [a, b, ..] = philox4x32(key, counter);
    u64::from(a) | u64::from(b) << 32
}

/// 64 random bits at position `index` of the sequence of `key`.
#[inline(always)]
pub fn bits(key: u64, index: u64) -> u64 {
    let counter = [index as u32, (index >> 32) as u32, 0, 0];
    let [a, b, ..] = philox4x32([key as u32, (key >> 32) as u32], counter);
    u64::from(a) | u64::from(b) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the Random123 library (`kat_vectors`, philox4x32 10 rounds).
    #[test]
    fn known_answers() {
        assert_eq!(philox4x32([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([u32::MAX; 2], [u32::MAX; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn keys_differ_by_every_part() {
        let base = site_key(1, "fc1.weight", 0);
        assert_ne!(base, site_key(2, "fc1.weight", 0));
        assert_ne!(base, site_key(1, "fc2.weight", 0));
        assert_ne!(base, site_key(1, "fc1.weight", 1));
    }
}
