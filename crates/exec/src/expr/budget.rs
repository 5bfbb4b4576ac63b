//! The budget of one evaluation. An expression may come from an untrusted author, and lists within lists
//! (`lists.range(1000000).map(x, lists.range(1000000))`) would keep a worker busy for years, or fill its memory.
//!
//! The evaluator has no bound of its own, so charges are inserted into the expression: an iteration is charged the
//! length of its list beforehand, and a call that makes a value is charged the size of its result. Once the budget is
//! used up, every further charge fails, so the evaluation ends soon; it then counts as failed, whatever value it
//! returned.

use cel::{
    Env, ExecutionError, IdedExpr,
    common::{
        ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, operators},
        types::{CelBytes, CelList, CelMap, CelString, DYN_TYPE},
        value::{CowVal, Val},
    },
};
use std::cell::Cell;

/// The budget of one evaluation, in units: elements visited or made, and pieces of text made. It is a second or two of
/// work. Typical expressions take some hundred units; one that filters a sheet of 100,000 rows, some hundred thousand.
pub(super) const UNITS_MAX: u64 = 10_000_000;

/// Bytes of text that count as one unit.
const TEXT_BYTES: usize = 16;

/// Units of a map beside those of its entries.
const MAP_UNITS: u64 = 16;

/// Levels of nested lists and maps whose size is counted.
const LEVELS_MAX: u32 = 64;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(UNITS_MAX) };
}

/// Names of the charging functions, which no source can spell.
const GOES_OVER: &str = "@goesOver";
const COMPARES_ALL: &str = "@comparesAll";
const MADE: &str = "@made";
const MAY_GO_ON: &str = "@mayGoOn";

/// Adds the functions that [`bound`] inserts calls of.
///
/// # Errors
/// If they were added before.
pub(super) fn extension(env: &mut Env) -> Result<(), cel::DeclarationError> {
    env.add_overload(GOES_OVER, "@goesOver(dyn)", vec![DYN_TYPE], goes_over)?;
    env.add_overload(COMPARES_ALL, "@comparesAll(dyn)", vec![DYN_TYPE], compares_all)?;
    env.add_overload(MAY_GO_ON, "@mayGoOn(dyn)", vec![DYN_TYPE], may_go_on)?;
    env.add_overload(MADE, "@made(dyn)", vec![DYN_TYPE], made)
}

/// Evaluates with a full budget. Returns `None` if it was used up.
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

/// Fails if the budget is used up. `all` and `exists` continue after a failed element, so each element checks this
/// first.
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

/// Returns the size of a value in units; counting stops at `most`.
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
        // The order of the map does not matter for a sum.
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

/// Returns the same expression with charges inserted.
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

/// The result of a function may be larger than its arguments. Of the operators this is true only of `+`.
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

/// Inserts charges into the step of a comprehension. The shape "accumulator + element" must stay as it is: the
/// evaluator recognises it and then does not copy the list.
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
