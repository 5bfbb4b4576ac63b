//! The rows that `get` and `scan` see.

use super::Bed;
use crate::{records::Scan, testing::batches::*};
use onceflow_core::{Group, Name};

/// Answers in the order of the question, for rows that are there or not, the same one twice, or none.
pub async fn get_returns_rows_in_the_order_of_the_keys(bed: Bed) {
    bed.apply(batch([put(key("a"), row("1")), put(key("b"), row("")), put(queue().key("a"), inbox(""))])).await;
    let ask = [key("b"), key("none"), key("a"), key("a"), queue().key("a"), Group::rows("none").key("a")];
    let found = bed.records.get(SHARD, &ask).await.expect("the store answers");
    assert_eq!(found, [Some(row("")), None, Some(row("1")), Some(row("1")), Some(inbox("")), None]);
    assert_eq!(bed.records.get(SHARD, &[]).await.expect("the store answers"), []);
}

/// Any bytes are a name, an id or a content, and a row reads as it was put.
pub async fn any_bytes_round_trip(bed: Bed) {
    let all: Vec<u8> = (0..=255).collect();
    for group in [Group::rows(&all), Group::rows(""), Group::rows([0]), Group::rows("a/b:{c}"), Group::rows("\n\"")] {
        for name in [&all[..], b"", b"\0", b"\xFF", b"a\0b", b"*[?]", "ü\u{1F980}".as_bytes()] {
            let content = [group.id(), name, &all].concat();
            bed.apply(batch([put(group.key(name), row(&content))])).await;
            assert_eq!(bed.get(group.key(name)).await, Some(row(&content)), "{group:?} {}", name.escape_ascii());
        }
        assert_eq!(bed.rows(SHARD, group).await.len(), 7);
    }
}

/// Names sort as their bytes do, unsigned, a shorter one first.
pub async fn names_sort_bytewise(bed: Bed) {
    let sorted: [&[u8]; 10] = [b"", b"\0", b"\0\0", b"\x01", b"A", b"a", b"a\0", b"aa", b"\x80", b"\xFF\xFF"];
    bed.apply(batch(sorted.iter().rev().map(|name| put(key(name), row(""))).collect::<Vec<_>>())).await;
    let found = bed.rows(SHARD, group()).await;
    assert_eq!(found.iter().map(|(key, _)| key.name.as_bytes()).collect::<Vec<_>>(), sorted);
}

/// Every combination of prefix, start and limit gives the same rows as a plain loop over all rows.
pub async fn every_scan_equals_a_filter_over_all_rows(bed: Bed) {
    let names: [&[u8]; 11] =
        [b"", b"a", b"a\0", b"ab", b"a\xFF", b"a\xFF\xFF", b"b", b"\xFE", b"\xFF", b"\xFF\xFF", b"\xFF\xFFz"];
    let other: [&[u8]; 4] = [b"a\xFE", b"c", b"\0", b"\xFF\xFF\xFF"];
    bed.apply(batch(names.map(|name| put(key(name), row(name))))).await;
    let starts: Vec<_> = names.iter().chain(&other).map(Some).chain([None]).collect();
    for prefix in names.iter().chain(&other) {
        for after in &starts {
            let after = after.map(Name::new);
            let begins = |name: &&&[u8]| name.starts_with(prefix);
            let later = |name: &&&[u8]| after.as_ref().is_none_or(|after| **name > after.as_bytes());
            let all: Vec<_> = names.iter().filter(begins).filter(later).map(|n| (Name::new(n), row(n))).collect();
            for limit in [0, 1, 2, all.len(), all.len() + 1, usize::MAX] {
                let scan = Scan::of(group(), limit).prefix(prefix).after(after.clone());
                let page = bed.records.scan(SHARD, scan.clone()).await.expect("the store answers");
                assert_eq!(page.rows, all[..limit.min(all.len())], "{scan:?}");
                assert_eq!(page.more, limit < all.len(), "{scan:?}");
            }
        }
    }
}

/// Nothing is found in a group that never was, and nothing but their own rows in those that are.
pub async fn a_scan_returns_rows_of_its_group_only(bed: Bed) {
    bed.run([put(key("a"), row("")), put(Group::rows("gg").key("b"), row("")), ready("c")]).await;
    bed.take_all().await;
    for (group, names) in [
        (Group::rows("none"), ""),
        (group(), "a"),
        (Group::rows("gg"), "b"),
        (queue(), "c"),
        (queue().claims(), "c"),
        (queue().deadlines(), "c"),
        (Group::rows("q"), ""),
    ] {
        assert_eq!(bed.names(group.clone()).await, names, "{group:?}");
    }
}

/// A page has a most, whatever was asked for; going on after its last name finds the rest.
pub async fn scan_pages_are_bounded_and_resume_after_the_last_name(bed: Bed) {
    let most = onceflow_core::limits::SCAN_ROWS_MAX;
    let name = |n: usize| format!("{n:06}");
    for some in (0..=most).collect::<Vec<_>>().chunks(1000) {
        bed.apply(batch(some.iter().map(|n| put(key(name(*n)), row(""))).collect::<Vec<_>>())).await;
    }
    let scan = Scan::of(group(), usize::MAX);
    let page = bed.records.scan(SHARD, scan.clone()).await.expect("the store answers");
    assert_eq!((page.rows.len(), page.more), (most, true));
    let after = page.rows.last().map(|(name, _)| name.clone());
    let rest = bed.records.scan(SHARD, scan.after(after)).await.expect("the store answers");
    assert_eq!((rest.rows, rest.more), (vec![(Name::new(name(most)), row(""))], false));
}
