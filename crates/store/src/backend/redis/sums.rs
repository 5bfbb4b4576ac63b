//! Tables with which a script computes the checksums of rows: a server's Lua has no CRC, and tables are faster than bit
//! by bit. Table `n` holds the contribution of a byte that stands `n` bytes before the end of the summed bytes.

use std::fmt::Write;

/// Bytes summed at a time.
const TABLES: usize = 16;

/// The polynomial of `crc32fast`, lowest bit first.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Those that a value without references needs: five bytes, followed by two that are zero.
const NEAR: std::ops::RangeInclusive<usize> = 2..=6;

fn compute() -> Vec<[u32; 256]> {
    let bit = |sum: u32| if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
    let first: [u32; 256] = std::array::from_fn(|byte| (0..8).fold(byte as u32, |sum, _| bit(sum)));
    let further = |before: &[u32; 256]| Some(before.map(|sum| (sum >> 8) ^ first[(sum & 255) as usize]));
    std::iter::successors(Some(first), further).take(TABLES).collect()
}

/// The tables as Lua: functions that give those of short sums, and the others. Making all of them takes a server some fifty
/// microseconds, so a script makes those it needs.
pub(super) fn tables() -> String {
    let tables = compute();
    let table = |n: usize| {
        let numbers: Vec<_> = tables[n].iter().map(u32::to_string).collect();
        format!("{{[0]={}}}", numbers.join(","))
    };
    let all = |some: &mut dyn Iterator<Item = usize>| some.map(table).collect::<Vec<_>>().join(",");
    // All bits are set before the first byte, and turned after the last.
    let seven = !(3..=6).fold(0, |sum, n| sum ^ tables[n][255]);
    let mut code = String::new();
    let mut near = NEAR;
    let near = all(&mut near);
    let far = all(&mut (0..TABLES).filter(|n| !NEAR.contains(n)));
    writeln!(code, "local SUM_OF_SEVEN = {seven}").expect("memory takes it");
    writeln!(code, "local function near_tables() return {near} end").expect("memory takes it");
    writeln!(code, "local function far_tables() return {far} end").expect("memory takes it");
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the script does it, for as many bytes as there are tables.
    fn sum(bytes: &[u8]) -> u32 {
        let tables = compute();
        let from_start = |at: usize| if at < 4 { 255 } else { 0 };
        let each = bytes.iter().enumerate();
        !each.fold(0, |sum, (at, byte)| sum ^ tables[bytes.len() - 1 - at][usize::from(*byte ^ from_start(at))])
    }

    #[test]
    fn tables_give_the_sum_that_rows_carry() {
        for many in 4..=TABLES {
            let bytes: Vec<_> = (0..many).map(|n| (n * 37 + 11) as u8).collect();
            assert_eq!(sum(&bytes), crc32fast::hash(&bytes));
        }
    }
}
