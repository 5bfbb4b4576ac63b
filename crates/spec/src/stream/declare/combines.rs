//! Reads what a step combines.

use super::one_of;
use crate::{
    source::Text,
    syntax::{MapKey, NodeKind, YamlNode, fields::FieldReader, step::words_of},
};
use onceflow_stream::window::Windowing;

/// A field of a combine.
pub(in crate::stream) struct CombineDecl {
    pub(in crate::stream) kind: CombineKind,
    /// The combined value; for `top` the value to sort by.
    pub(in crate::stream) of: Option<Text>,
    pub(in crate::stream) fold: Option<FoldDecl>,
}

/// A combine of the user's.
pub(in crate::stream) struct FoldDecl {
    /// The value of no records.
    pub(in crate::stream) start: Text,
    /// The value with one more record.
    pub(in crate::stream) add: Text,
    /// The value of two parts.
    pub(in crate::stream) merge: Option<Text>,
    /// It is declared associative and commutative.
    pub(in crate::stream) is_lawful: bool,
}

/// The kinds of combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stream) enum CombineKind {
    Count,
    Sum,
    Min,
    Max,
    Mean,
    Distinct,
    Top(usize),
    Fold,
}

/// Records of a `top`, at most: they are kept together in one row.
const TOP_MAX: i64 = 1000;

/// Keys of a step that stand for a `combine` of one field of that name.
pub(super) const SHORT: &[&str] = &["count", "sum", "min", "max", "mean", "distinct", "top", "fold"];

const COMBINES: &[&str] = &["sum", "min", "max", "mean", "distinct", "top", "fold"];

const TOP_HINT: &str = "`{ top: 10, by: record.count }`: the ten records with the largest counts";

/// Reads the fields of a `combine`.
pub(super) fn fields(reader: FieldReader<'_>, node: &YamlNode) -> Vec<(MapKey, CombineDecl)> {
    let one = |(key, node): &(MapKey, YamlNode)| {
        reader.member(&key.name, key.span, "a field");
        if let NodeKind::Scalar(..) = node.what {
            reader.word(node, &format!("`{}`", key.name), &["count"])?;
            return Some((key.clone(), CombineDecl { kind: CombineKind::Count, of: None, fold: None }));
        }
        let mut fields = reader.fields(node, format!("field `{}`", key.name))?;
        fields.span = key.span;
        let found = one_of(&mut fields, key, COMBINES);
        let by = fields.text("by");
        fields.finish();
        let (kind, node) = found?;
        if (kind.name == "top") != by.is_some() {
            let message = if by.is_none() { "`top` sorts `by` something" } else { "`by` goes with `top`" };
            reader.say(key.span, "OF0113", message, TOP_HINT);
            return None;
        }
        let decl = match kind.name.as_str() {
            "top" => CombineDecl { kind: top(reader, node)?, of: by, fold: None },
            _ => of_one(reader, kind, node)?,
        };
        Some((key.clone(), decl))
    };
    reader.entries(node, "`combine`").iter().filter_map(one).collect()
}

/// Reads a step that combines one field of the name of its kind: `count: {}`, `sum: record.n`, `top: { n: 10, by: … }`.
pub(super) fn short(reader: FieldReader<'_>, kind: &MapKey, node: &YamlNode) -> Option<(MapKey, CombineDecl)> {
    let decl = match kind.name.as_str() {
        "count" => {
            reader.fields(node, "`count`")?.finish();
            CombineDecl { kind: CombineKind::Count, of: None, fold: None }
        }
        "top" => {
            let mut fields = reader.fields(node, "`top`")?;
            let (n, by) = (fields.get("n").map(|node| top(reader, node)), fields.text("by"));
            if n.is_none() || by.is_none() {
                fields.missing("`n` and `by`", "`top: { n: 10, by: record.count }`");
            }
            fields.finish();
            CombineDecl { kind: n??, of: Some(by?), fold: None }
        }
        _ => of_one(reader, kind, node)?,
    };
    Some((kind.clone(), decl))
}

fn top(reader: FieldReader<'_>, node: &YamlNode) -> Option<CombineKind> {
    Some(CombineKind::Top(usize::try_from(reader.int(node, "`top`", 1, TOP_MAX)?).ok()?))
}

/// Reads a combine whose key has all of it.
fn of_one(reader: FieldReader<'_>, kind: &MapKey, node: &YamlNode) -> Option<CombineDecl> {
    let kind = match kind.name.as_str() {
        "fold" => return Some(CombineDecl { kind: CombineKind::Fold, of: None, fold: Some(fold(reader, node)?) }),
        "sum" => CombineKind::Sum,
        "min" => CombineKind::Min,
        "max" => CombineKind::Max,
        "mean" => CombineKind::Mean,
        _ => CombineKind::Distinct,
    };
    Some(CombineDecl { kind, of: Some(reader.text(node, "what is combined")?), fold: None })
}

fn fold(reader: FieldReader<'_>, node: &YamlNode) -> Option<FoldDecl> {
    const HINT: &str = "`fold: { start: 0, add: acc + record.n }`; with `merge: acc + other` and `laws: [associative, \
                        commutative]` records are combined before they are sent";
    let mut fields = reader.fields(node, "`fold`")?;
    let (start, add, merge) = (fields.text("start"), fields.text("add"), fields.text("merge"));
    let laws = fields.get("laws").map(|node| words_of(reader, node, "`laws`")).unwrap_or_default();
    if start.is_none() || add.is_none() {
        fields.missing("`start` and `add`", HINT);
    }
    let span = fields.span;
    fields.finish();
    for law in laws.iter().filter(|law| !["associative", "commutative"].contains(&law.text.as_str())) {
        let message = format!("`laws` cannot be `{}`", law.text);
        reader.say(law.span, "OF0112", message, "it is one of `associative`, `commutative`");
    }
    if !laws.is_empty() && merge.is_none() {
        reader.say(span, "OF0113", "`laws` go with `merge`: they say how parts may be merged", HINT);
    }
    let has = |law: &str| laws.iter().any(|declared| declared.text == law);
    let is_lawful = merge.is_some() && has("associative") && has("commutative");
    Some(FoldDecl { start: start?, add: add?, merge, is_lawful })
}

/// Reports folds without `merge` where windows merge.
pub(super) fn check_merges(reader: FieldReader<'_>, fields: &[(MapKey, CombineDecl)], windowing: Windowing) {
    let merges = windowing.kind.merges();
    let unmerged = |decl: &CombineDecl| decl.fold.as_ref().is_some_and(|fold| fold.merge.is_none());
    for (name, _) in fields.iter().filter(|(_, decl)| merges && unmerged(decl)) {
        let message = format!("sessions merge, and the fold `{}` has no `merge`", name.name);
        reader.say(name.span, "OF0113", message, "`merge: acc + other` makes one value of two");
    }
}
