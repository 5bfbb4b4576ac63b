//! From one input to another: a few small changes, decided by a seed alone.

use onceflow_store::testing::random::Random;

/// No input grows longer than this.
pub const INPUT_BYTES_MAX: usize = 8 << 10;

/// Changes at a time: mostly few.
const CHANGES_MAX: usize = 6;

/// Changes an input. `others` are what parts can be taken from, `words` what means something to the target.
pub fn mutate(random: &mut Random, input: &[u8], others: &[Vec<u8>], words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(CHANGES_MAX) {
        change(random, &mut bytes, others, words);
        bytes.truncate(INPUT_BYTES_MAX);
    }
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, others: &[Vec<u8>], words: &[&[u8]]) {
    let at = random.below(bytes.len() + 1);
    let to = at + random.below((bytes.len() - at).min(64) + 1);
    match random.below(14) {
        0 | 1 => flip(random, bytes),
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..to)),
        4 => repeat(random, bytes, at..to),
        5 | 6 => splice(random, bytes, at..to, others),
        7 => number(random, bytes),
        8 => drop(bytes.splice(at..to, (0..random.below(9)).map(|_| random.bits() as u8).collect::<Vec<_>>())),
        9 => swap_lines(random, bytes),
        _ if words.is_empty() => flip(random, bytes),
        10 => drop(bytes.splice(at..to, random.pick(words).to_vec())),
        11 => {
            let times = 1 << random.below(9);
            drop(bytes.splice(at..at, random.pick(words).repeat(times)));
        }
        _ => drop(bytes.splice(at..at, random.pick(words).to_vec())),
    }
}

fn flip(random: &mut Random, bytes: &mut [u8]) {
    if !bytes.is_empty() {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
    }
}

/// Says a part again, now and then very often.
fn repeat(random: &mut Random, bytes: &mut Vec<u8>, part: std::ops::Range<usize>) {
    let times = 1 << random.below(8);
    let more = bytes[part.clone()].repeat(times);
    drop(bytes.splice(part.end..part.end, more));
}

/// Puts a part of another input, or of this one, into its place.
fn splice(random: &mut Random, bytes: &mut Vec<u8>, place: std::ops::Range<usize>, others: &[Vec<u8>]) {
    let from = if others.is_empty() { bytes.clone() } else { random.pick(others).clone() };
    let start = random.below(from.len() + 1);
    let end = start + random.below(from.len() - start + 1);
    let place = if random.percent(30) { place.start..bytes.len() } else { place };
    drop(bytes.splice(place, from[start..end].iter().copied()));
}

/// Puts a number that is at some border, as bytes, into place.
fn number(random: &mut Random, bytes: &mut [u8]) {
    const BORDERS: [u64; 8] = [0, 1, 0x7f, 0x80, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];
    let number = random.pick(&BORDERS).to_le_bytes();
    let width = *random.pick(&[1, 2, 4, 8]);
    if bytes.len() >= width {
        let at = random.below(bytes.len() - width + 1);
        bytes[at..at + width].copy_from_slice(&number[..width]);
    }
}

fn swap_lines(random: &mut Random, bytes: &mut Vec<u8>) {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.len() > 1 {
        let (one, other) = (random.below(lines.len()), random.below(lines.len()));
        lines.swap(one, other);
        *bytes = lines.concat();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs_none_of_them_too_long() {
        let others = vec![b"one\ntwo\n".to_vec(), vec![7; INPUT_BYTES_MAX]];
        let all = |seed| {
            let mut random = Random::new(seed);
            let mut input = Vec::new();
            let mut all = Vec::new();
            for _ in 0..500 {
                input = mutate(&mut random, &input, &others, &[b"word", b"{"]);
                all.push(input.clone());
            }
            all
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        assert!(all(3).iter().all(|input| input.len() <= INPUT_BYTES_MAX));
    }
}
