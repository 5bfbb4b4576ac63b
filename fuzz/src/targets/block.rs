//! Blocks of records, as a stage receives them. Whatever comes is refused, or is a block whose records can be read to the
//! last, have the numbers that its header says, and make the same block again.
//!
//! An input is tried as it is, and once more with the version and the checksum that a sender would give it.

use super::Target;
use onceflow_core::Row;
use onceflow_stream::{
    EventTime,
    block::{BadBlock, BlockBuilder, RecordBlock},
    identity::{ProducerId, Stamp},
};

pub(super) const TARGET: Target = Target { name: "block", run, seeds, words: &[&[1], &[0xff, 0xff, 0xff, 0xff, 0x0f]] };

/// The format of a block, its first byte.
const VERSION: u8 = 1;

fn run(input: &[u8]) -> String {
    let mut sealed = input.to_vec();
    if let Some(version) = sealed.first_mut() {
        *version = VERSION;
    }
    let checksum = crc32fast::hash(&sealed).to_le_bytes();
    sealed.extend(checksum);
    format!("{} {}", look(input.to_vec()), look(sealed))
}

/// Decodes bytes; says how they came out.
fn look(bytes: Vec<u8>) -> String {
    let block = match RecordBlock::decode(Row::from(bytes)) {
        Ok(block) => block,
        Err(BadBlock::Length) => return "length".into(),
        Err(BadBlock::Version(_)) => return "version".into(),
        Err(BadBlock::Checksum) => return "checksum".into(),
    };
    let mut again = BlockBuilder::default();
    let mut numbers = block.seqs();
    for record in block.records() {
        assert_eq!(Some(record.seq), numbers.next(), "the records have the numbers of the header");
        again.push(record.key, record.value, record.time);
    }
    assert_eq!(numbers.next(), None, "every record of the header is there");
    let again = again.finish(block.producer(), block.seqs().start, block.stamp());
    let again = RecordBlock::decode(again).expect("a block that was built is whole");
    assert!(block.records().eq(again.records()), "records change when they are written again");
    assert_eq!((block.seqs(), block.earliest()), (again.seqs(), again.earliest()));
    format!("block {}", block.records().count().min(3))
}

/// Blocks as senders make them, without their checksums; and whole ones.
fn seeds() -> Vec<Vec<u8>> {
    let records: [&[(&[u8], &[u8], i64)]; 4] = [
        &[],
        &[(b"key", b"value", 5)],
        &[(b"", b"", i64::MIN), (b"k", b"", i64::MAX)],
        &[(&[b'k'; 200], &[b'v'; 300], -7), (b"a", b"b", 0), (b"a", b"c", 1 << 40)],
    ];
    let build = |records: &[(&[u8], &[u8], i64)], first| {
        let mut builder = BlockBuilder::default();
        records.iter().for_each(|(key, value, time)| builder.push(key, value, EventTime(*time)));
        builder.finish(ProducerId::new(1, 2, 3, 0), first, Stamp(9)).to_vec()
    };
    let whole = records.iter().flat_map(|records| [build(records, 0), build(records, u64::MAX - 3)]);
    whole.flat_map(|block| [block[..block.len() - 4].to_vec(), block]).collect()
}
