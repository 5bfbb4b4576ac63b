//! Makes a failing input as short as it can be: shorter ones are tried as long as they still fail.

/// The shortest input that was found to fail, with at most `tries_max` tries.
pub fn reduce(input: &[u8], tries_max: usize, mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut best = input.to_vec();
    let mut tries = 0;
    let mut size = best.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        let mut shorter_by_one = false;
        while at < best.len() {
            if tries >= tries_max {
                return best;
            }
            tries += 1;
            let end = (at + size).min(best.len());
            let shorter = [&best[..at], &best[end..]].concat();
            if fails(&shorter) {
                best = shorter;
                shorter_by_one = true;
            } else {
                at += size;
            }
        }
        if size > 1 || !shorter_by_one {
            size /= 2;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reducing_drops_input_that_the_failure_does_not_need() {
        let fails = |input: &[u8]| input.contains(&7) && input.contains(&9);
        let input: Vec<u8> = (0..200).collect();
        assert_eq!(reduce(&input, 10_000, fails), [7, 9]);
        assert!(fails(&reduce(&input, 5, fails)));
    }
}
