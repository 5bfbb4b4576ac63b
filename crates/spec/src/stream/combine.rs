//! Combines of values whose types are known only when they come: several fields at once, each with its own state.

use super::{
    declare::CombineKind,
    expression::{ACC, OTHER, RECORD, RecordExpression},
};
use onceflow_core::model::Type;
use onceflow_exec::{expr::Bindings, value::PortValue};
use onceflow_stream::combine::{ApproxDistinct, Combine, Laws, Sketch};
use serde::{Deserialize, Serialize};
use std::{cmp::Ordering, sync::Arc};

/// A field of a combine: its name, kind, and the value that is combined.
#[derive(Clone, Debug)]
pub(super) struct FieldCombine {
    pub(super) name: String,
    pub(super) kind: CombineKind,
    pub(super) of: Option<RecordExpression>,
    pub(super) fold: Option<CheckedFold>,
}

/// A combine of the user's: expressions over `acc`, the value so far.
#[derive(Clone, Debug)]
pub(super) struct CheckedFold {
    parts: Arc<FoldParts>,
}

#[derive(Debug)]
struct FoldParts {
    start: PortValue,
    add: RecordExpression,
    merge: Option<RecordExpression>,
    is_lawful: bool,
}

impl CheckedFold {
    pub(super) fn new(
        start: PortValue,
        add: RecordExpression,
        merge: Option<RecordExpression>,
        is_lawful: bool,
    ) -> Self {
        CheckedFold { parts: Arc::new(FoldParts { start, add, merge, is_lawful }) }
    }

    fn add(&self, acc: &mut Result<PortValue, String>, record: PortValue) {
        change(acc, &self.parts.add, RECORD, record);
    }

    fn merge(&self, acc: &mut Result<PortValue, String>, other: Result<PortValue, String>) {
        match (&self.parts.merge, other) {
            (Some(merge), Ok(other)) => change(acc, merge, OTHER, other),
            (None, Ok(_)) => unreachable!("a fold without `merge` is neither lifted nor over sessions"),
            (_, Err(why)) => *acc = Err(why),
        }
    }
}

/// Replaces a value by that of an expression; one that failed stays so.
fn change(acc: &mut Result<PortValue, String>, expression: &RecordExpression, name: &str, value: PortValue) {
    if let Ok(before) = acc {
        let mut scope = Bindings::new();
        scope.set(ACC, std::mem::replace(before, PortValue::Null));
        scope.set(name, value);
        *acc = expression.eval(&scope);
    }
}

impl FieldCombine {
    /// Returns the type of its result, over records of a type.
    pub(super) fn ty(&self, record: &Type) -> Type {
        let of = || self.of.as_ref().map_or(Type::Json, |of| of.ty.clone());
        match self.kind {
            CombineKind::Count | CombineKind::Distinct => Type::Int,
            CombineKind::Sum => of(),
            CombineKind::Min | CombineKind::Max => match of() {
                Type::Json => Type::Json,
                ty @ Type::Option(_) => ty,
                ty => Type::option(ty),
            },
            CombineKind::Mean => Type::option(Type::Float),
            CombineKind::Top(_) => Type::list(record.clone()),
            CombineKind::Fold => Type::Json,
        }
    }

    /// Sums of floating-point numbers depend on the order; of a value without a type it is not known what it is.
    fn laws(&self) -> Laws {
        let is_int = self.of.as_ref().is_some_and(|of| of.ty == Type::Int || of.ty == Type::option(Type::Int));
        match self.kind {
            CombineKind::Sum | CombineKind::Mean if !is_int => Laws::NONE,
            CombineKind::Fold if !self.fold.as_ref().is_some_and(|fold| fold.parts.is_lawful) => Laws::NONE,
            _ => Laws::ALL,
        }
    }

    /// Returns the part of a record that it needs; the error is the reason why there is none.
    fn taken(&self, scope: &Bindings, record: &PortValue) -> Result<TakenValue, String> {
        let value = match &self.of {
            None => PortValue::Null,
            Some(of) => of.eval(scope)?,
        };
        match (self.kind, value) {
            (CombineKind::Top(_), by) => Ok(TakenValue { value: by, record: Some(record.clone()) }),
            (CombineKind::Fold, _) => Ok(TakenValue { value: PortValue::Null, record: Some(record.clone()) }),
            (CombineKind::Sum | CombineKind::Mean, value) if !is_number(&value) => {
                Err(format!("`{}` combines numbers, not {}", self.name, value.describe()))
            }
            (_, value) => Ok(TakenValue { value, record: None }),
        }
    }
}

fn is_number(value: &PortValue) -> bool {
    matches!(value, PortValue::Null | PortValue::Int(_) | PortValue::Float(_))
}

/// The part of a record that a field takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TakenValue {
    value: PortValue,
    /// The record itself, for `top`.
    record: Option<PortValue>,
}

/// The parts of a record that the fields take, and the record itself where it is wanted if it comes late.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TakenRecord {
    values: Vec<TakenValue>,
    pub(super) record: Option<PortValue>,
}

/// A record of a `top`, and the value it is sorted by.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RankedRecord {
    by: PortValue,
    record: PortValue,
}

/// A sum of numbers: exact as long as all of them are whole.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct NumberSum {
    whole: i128,
    rest: Option<f64>,
    count: u64,
}

impl NumberSum {
    fn add(&mut self, value: &PortValue) {
        match value {
            PortValue::Int(value) => self.whole += i128::from(*value),
            PortValue::Float(value) => self.rest = Some(self.rest.unwrap_or(0.0) + value),
            _ => return,
        }
        self.count += 1;
    }

    fn as_float(self) -> f64 {
        self.whole as f64 + self.rest.unwrap_or(0.0)
    }

    fn sum(self) -> PortValue {
        match (self.rest, i64::try_from(self.whole)) {
            (None, Ok(whole)) => PortValue::Int(whole),
            _ => PortValue::Float(self.as_float()),
        }
    }
}

/// The value of a field so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum FieldState {
    Count(u64),
    Sum(NumberSum),
    Extreme(Option<PortValue>),
    Distinct(Sketch),
    Top(Vec<RankedRecord>),
    Fold(Result<PortValue, String>),
}

/// Several fields, combined together.
#[derive(Clone, Debug)]
pub(super) struct StreamCombine {
    fields: Arc<Vec<FieldCombine>>,
}

impl StreamCombine {
    pub(super) fn new(fields: Vec<FieldCombine>) -> Self {
        StreamCombine { fields: Arc::new(fields) }
    }

    /// Returns the parts of a record that the fields need.
    pub(super) fn taken(&self, scope: &Bindings, record: &PortValue) -> Result<TakenRecord, String> {
        let values = self.fields.iter().map(|field| field.taken(scope, record)).collect::<Result<_, _>>()?;
        Ok(TakenRecord { values, record: None })
    }

    /// Returns the names of the results.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_str())
    }
}

impl Combine for StreamCombine {
    type In = TakenRecord;
    type Acc = Vec<FieldState>;
    type Out = Result<Vec<PortValue>, String>;

    fn identity(&self) -> Vec<FieldState> {
        let state = |field: &FieldCombine| match field.kind {
            CombineKind::Count => FieldState::Count(0),
            CombineKind::Sum | CombineKind::Mean => FieldState::Sum(NumberSum { whole: 0, rest: None, count: 0 }),
            CombineKind::Min | CombineKind::Max => FieldState::Extreme(None),
            CombineKind::Distinct => FieldState::Distinct(ApproxDistinct::<PortValue>::new().identity()),
            CombineKind::Top(_) => FieldState::Top(Vec::new()),
            CombineKind::Fold => {
                FieldState::Fold(Ok(field.fold.as_ref().map_or(PortValue::Null, |fold| fold.parts.start.clone())))
            }
        };
        self.fields.iter().map(state).collect()
    }

    fn add(&self, acc: &mut Vec<FieldState>, record: TakenRecord) {
        for ((field, state), taken) in self.fields.iter().zip(acc).zip(record.values) {
            match (state, taken) {
                (FieldState::Count(count), _) => *count += 1,
                (FieldState::Sum(sum), taken) => sum.add(&taken.value),
                (FieldState::Top(top), TakenValue { value: by, record: Some(record) }) => {
                    insert(top, RankedRecord { by, record }, field.kind);
                }
                (FieldState::Fold(acc), TakenValue { record: Some(record), .. }) => {
                    field.fold.iter().for_each(|fold| fold.add(acc, record.clone()));
                }
                (_, TakenValue { value: PortValue::Null, .. }) => {}
                (FieldState::Extreme(best), taken) => better(best, taken.value, field.kind),
                (FieldState::Distinct(sketch), taken) => {
                    ApproxDistinct::<PortValue>::new().add(sketch, taken.value);
                }
                (FieldState::Top(_) | FieldState::Fold(_), _) => {}
            }
        }
    }

    fn merge(&self, acc: &mut Vec<FieldState>, other: Vec<FieldState>) {
        for ((field, state), other) in self.fields.iter().zip(acc).zip(other) {
            match (state, other) {
                (FieldState::Count(count), FieldState::Count(other)) => *count += other,
                (FieldState::Sum(sum), FieldState::Sum(other)) => {
                    sum.whole += other.whole;
                    sum.count += other.count;
                    if let Some(rest) = other.rest {
                        sum.rest = Some(sum.rest.unwrap_or(0.0) + rest);
                    }
                }
                (FieldState::Extreme(best), FieldState::Extreme(Some(other))) => better(best, other, field.kind),
                (FieldState::Distinct(sketch), FieldState::Distinct(other)) => {
                    ApproxDistinct::<PortValue>::new().merge(sketch, other);
                }
                (FieldState::Fold(acc), FieldState::Fold(other)) => {
                    field.fold.iter().for_each(|fold| fold.merge(acc, other.clone()));
                }
                (FieldState::Top(top), FieldState::Top(others)) => {
                    others.into_iter().for_each(|other| insert(top, other, field.kind));
                }
                _ => {}
            }
        }
    }

    fn result(&self, acc: Vec<FieldState>) -> Result<Vec<PortValue>, String> {
        let count = |count: u64| PortValue::Int(i64::try_from(count).unwrap_or(i64::MAX));
        let one = |(field, state): (&FieldCombine, FieldState)| {
            Ok(match state {
                FieldState::Fold(acc) => acc.map_err(|why| format!("`{}`: {why}", field.name))?,
                FieldState::Count(records) => count(records),
                FieldState::Sum(sum) if field.kind == CombineKind::Mean => match sum.count {
                    0 => PortValue::Null,
                    records => PortValue::Float(sum.as_float() / records as f64),
                },
                FieldState::Sum(sum) => sum.sum(),
                FieldState::Extreme(best) => best.unwrap_or(PortValue::Null),
                FieldState::Distinct(sketch) => count(ApproxDistinct::<PortValue>::new().result(sketch)),
                FieldState::Top(top) => PortValue::List(top.into_iter().map(|ranked| ranked.record).collect()),
            })
        };
        self.fields.iter().zip(acc).map(one).collect()
    }

    fn state(&self) -> String {
        let field = |field: &FieldCombine| format!("{}: {:?}", field.name, field.kind).to_lowercase();
        self.fields.iter().map(field).collect::<Vec<_>>().join(", ")
    }

    fn laws(&self) -> Laws {
        let all = self.fields.iter().all(|field| field.laws().allow_lifting());
        if all { Laws::ALL } else { Laws::NONE }
    }
}

fn better(best: &mut Option<PortValue>, value: PortValue, kind: CombineKind) {
    let wanted = if kind == CombineKind::Min { Ordering::Less } else { Ordering::Greater };
    if best.as_ref().is_none_or(|best| compare(&value, best) == wanted) {
        *best = Some(value);
    }
}

/// Adds a record to a `top`: the largest first; of equal ones the order of the records decides, so that it does not
/// depend on the order in which they came.
fn insert(top: &mut Vec<RankedRecord>, new: RankedRecord, kind: CombineKind) {
    let CombineKind::Top(n) = kind else { return };
    let is_before = |other: &RankedRecord| {
        compare(&new.by, &other.by).then_with(|| compare(&other.record, &new.record)) != Ordering::Greater
    };
    let at = top.partition_point(is_before);
    if at < n {
        top.insert(at, new);
        top.truncate(n);
    }
}

/// A total order of values: numbers by their size, texts by their letters, others by their kind and JSON.
pub(super) fn compare(a: &PortValue, b: &PortValue) -> Ordering {
    let number = |value: &PortValue| match value {
        PortValue::Int(value) => Some(*value as f64),
        PortValue::Float(value) => Some(*value),
        _ => None,
    };
    match (a, b) {
        (PortValue::Int(a), PortValue::Int(b)) => a.cmp(b),
        (PortValue::Text(a), PortValue::Text(b)) => a.cmp(b),
        _ => match (number(a), number(b)) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => a.kind().cmp(b.kind()).then_with(|| a.to_json().to_string().cmp(&b.to_json().to_string())),
        },
    }
}
