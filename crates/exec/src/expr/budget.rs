//! How much one evaluation may do. An expression comes from a file that anyone may have written, and lists within lists
//! (`lists.range(1000000).map(x, lists.range(1000000))`) would keep a worker busy for years, or fill its memory.
//!
//! The evaluator itself has no bound, so it is built into what is evaluated: whatever goes over a list says first how long
//! that is, and whatever makes something says how large it came out. When the budget is used up, everything that asks for
//! more fails, so the evaluation ends soon, and then it has failed, whatever it made of that.

use cel::{
    Env, ExecutionError, IdedExpr,
    common::{
        ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, operators},
        types::{CelBytes, CelList, CelMap, CelString, DYN_TYPE},
        value::{CowVal, Val},
    },
};
use std::cell::Cell;

/// Elements gone over and made, and pieces of text made, in one evaluation: a second or two of work. Expressions of people
/// do some hundred; one that filters a sheet of a hundred thousand rows, some hundred thousand.
pub(super) const UNITS_MAX: u64 = 10_000_000;

/// Text that counts as much as an element.
const TEXT_BYTES: usize = 16;

/// What a map takes beside its entries.
const MAP_UNITS: u64 = 16;

/// Lists within lists that are looked into.
const LEVELS_MAX: u32 = 64;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(UNITS_MAX) };
}

/// Names that no source can call.
const GOES_OVER: &str = "@goesOver";
const COMPARES_ALL: &str = "@comparesAll";
const MADE: &str = "@made";
const MAY_GO_ON: &str = "@mayGoOn";

/// Adds what [`bound`] calls.
///
/// # Errors
/// If it was added before.
pub(super) fn extension(env: &mut Env) -> Result<(), cel::DeclarationError> {
    env.add_overload(GOES_OVER, "@goesOver(dyn)", vec![DYN_TYPE], goes_over)?;
    env.add_overload(COMPARES_ALL, "@comparesAll(dyn)", vec![DYN_TYPE], compares_all)?;
    env.add_overload(MAY_GO_ON, "@mayGoOn(dyn)", vec![DYN_TYPE], may_go_on)?;
    env.add_overload(MADE, "@made(dyn)", vec![DYN_TYPE], made)
}

/// Evaluates with a whole budget. `None` if it was not enough.
pub(super) fn within<T>(evaluate: impl FnOnce() -> T) -> Option<T> {
    LEFT.with(|left| left.set(UNITS_MAX));
    let given = evaluate();
    LEFT.with(|left| left.get() > 0).then_some(given)
}

fn spend(units: u64) -> Result<(), ExecutionError> {
    let left = LEFT.with(|left| {
        left.set(left.get().saturating_sub(units));
        left.get()
    });
    if left == 0 { Err(ExecutionError::function_error("budget", "it does too much")) } else { Ok(()) }
}

type CallResult<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn charged<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>, units: fn(&dyn Val) -> u64) -> CallResult<'b, 'v> {
    let value = args.pop().ok_or_else(|| ExecutionError::invalid_argument_count(1, 0))?;
    spend(units(value.as_ref()))?;
    Ok(value)
}

/// `all` and `exists` go on when an element fails: then what they do next must fail before it does anything.
fn may_go_on<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    charged(args, |_| 0)
}

fn goes_over<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    charged(args, |value| 1 + len(value))
}

fn compares_all<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    charged(args, |value| 1 + len(value).saturating_mul(len(value)))
}

fn made<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> CallResult<'b, 'v> {
    charged(args, |value| {
        let most = LEFT.with(Cell::get);
        size(value, most, LEVELS_MAX)
    })
}

fn len(value: &dyn Val) -> u64 {
    value.as_sizer().map_or(0, |sizer| u64::try_from(*sizer.size().inner()).unwrap_or(0))
}

/// How large something is, as far as that matters: no more is counted than there may be.
fn size(value: &dyn Val, most: u64, levels: u32) -> u64 {
    let map = if value.downcast_ref::<CelMap<'_>>().is_some() { MAP_UNITS } else { 0 };
    let mut total = 1 + map + (text(value) / TEXT_BYTES) as u64;
    if levels == 0 {
        return total;
    }
    let mut add = |inner: &dyn Val| {
        if total < most {
            total += size(inner, most - total, levels - 1);
        }
        total < most
    };
    if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        list.inner().iter().all(|inner| add(inner.as_ref()));
    } else if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        // In any order: it is only added up.
        map.inner().values().all(|inner| add(inner.as_ref()));
    } else {
        total += len(value);
    }
    total
}

fn text(value: &dyn Val) -> usize {
    let text = value.downcast_ref::<CelString<'_>>().map(|text| text.inner().len());
    text.or_else(|| value.downcast_ref::<CelBytes<'_>>().map(|bytes| bytes.inner().len())).unwrap_or(0)
}

/// The same expression, which says what it does.
pub(super) fn bound(expr: &IdedExpr) -> IdedExpr {
    let mut bound = expr.clone();
    visit(&mut bound);
    bound
}

fn call(function: &str, of: &mut IdedExpr) {
    let inner = std::mem::take(of);
    let call = CallExpr { func_name: function.to_owned(), target: None, args: vec![inner] };
    *of = IdedExpr { id: of.id, expr: Expr::Call(call) };
}

fn visit(expr: &mut IdedExpr) {
    match &mut expr.expr {
        Expr::Call(called) => {
            called.target.iter_mut().for_each(|target| visit(target));
            called.args.iter_mut().for_each(visit);
            if let (operators::IN, Some(list)) = (called.func_name.as_str(), called.args.last_mut()) {
                call(GOES_OVER, list);
            }
            if let ("distinct", Some(list)) = (called.func_name.as_str(), called.target.as_deref_mut()) {
                call(COMPARES_ALL, list);
            }
            if makes(&called.func_name) {
                if let Some(first) = called.args.first_mut().or(called.target.as_deref_mut()) {
                    call(MAY_GO_ON, first);
                }
                call(MADE, expr);
            }
        }
        Expr::Comprehension(comprehension) => visit_comprehension(comprehension),
        Expr::List(list) => {
            list.elements.iter_mut().for_each(visit);
            if list.elements.len() > 1 {
                call(MADE, expr);
            }
        }
        Expr::Map(map) => {
            map.entries.iter_mut().for_each(visit_entry);
            if map.entries.len() > 1 {
                call(MADE, expr);
            }
        }
        Expr::Select(select) => visit(&mut select.operand),
        Expr::Struct(made) => made.entries.iter_mut().for_each(visit_entry),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

fn visit_entry(entry: &mut IdedEntryExpr) {
    match &mut entry.expr {
        EntryExpr::StructField(field) => visit(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            visit(&mut entry.key);
            visit(&mut entry.value);
        }
    }
}

/// Whether what a function gives may be larger than what it is given. Of the operators only `+` makes something.
fn makes(function: &str) -> bool {
    let is_operator = function.starts_with(['_', '-', '!']) || function == operators::IN;
    function == operators::ADD || !is_operator
}

fn visit_comprehension(comprehension: &mut ComprehensionExpr) {
    visit(&mut comprehension.iter_range);
    call(GOES_OVER, &mut comprehension.iter_range);
    if !matches!(comprehension.loop_cond.expr, Expr::Literal(_)) {
        call(MAY_GO_ON, &mut comprehension.loop_cond);
    }
    visit(&mut comprehension.accu_init);
    visit_step(&mut comprehension.loop_step, &comprehension.accu_var);
    visit(&mut comprehension.result);
}

/// What is done for each element. That it is added to what was gathered must stay as it is: the evaluator knows that shape,
/// and does not copy the list then.
fn visit_step(step: &mut IdedExpr, gathered: &str) {
    let is_gathered = |expr: &IdedExpr| matches!(&expr.expr, Expr::Ident(name) if name == gathered);
    match &mut step.expr {
        Expr::Call(called) if called.func_name == operators::CONDITIONAL && called.args.len() == 3 => {
            visit(&mut called.args[0]);
            visit_step(&mut called.args[1], gathered);
            visit_step(&mut called.args[2], gathered);
        }
        Expr::Call(called) if called.func_name == operators::ADD && called.args.first().is_some_and(is_gathered) => {
            match called.args.get_mut(1).map(|added| &mut added.expr) {
                Some(Expr::List(list)) => list.elements.iter_mut().for_each(|element| {
                    visit(element);
                    call(MADE, element);
                }),
                _ => called.args.iter_mut().skip(1).for_each(visit),
            }
        }
        _ => visit(step),
    }
}
