//! The flows: every shape there is, small enough that many of them are under way at a time. All take the number of their job
//! first.

use crate::tasks::*;
use onceflow::prelude::*;

/// What every flow here takes: the job, and a number.
pub(crate) type Given = (Port<u64>, Port<u64>);

pub(crate) fn chain() -> Flow<Given, Port<u64>> {
    Flow::new("chain", ["job", "n"], ["result"], |f, (job, n)| (0..6).fold(n, |n, _| f.add(bump(job, n))))
}

pub(crate) fn wide() -> Flow<Given, Port<u64>> {
    Flow::new("wide", ["job", "n"], ["sum"], |f, (job, n)| {
        let numbers = f.add(upto(n));
        let squares = f.each(numbers, |f, n| {
            let squared = f.add(square(job, n));
            f.add(bump(job, squared))
        });
        f.add(sum(squares))
    })
}

pub(crate) fn rounds() -> Flow<Given, Port<u64>> {
    Flow::new("rounds", ["job", "n"], ["result"], |f, (job, n)| {
        let zero = f.constant(0_u64);
        f.repeat(zero, |f, round| {
            let round = f.add(bump(job, round));
            (round, f.add(less(round, n)))
        })
    })
}

/// A list in which each element takes one of two ways.
pub(crate) fn choices() -> Flow<Given, Port<u64>> {
    Flow::new("choices", ["job", "n"], ["sum"], |f, (job, n)| {
        let numbers = f.add(upto(n));
        let all = f.at_most(4).each(numbers, |f, n| {
            let which = f.add(is_even(n));
            f.when(which, |f| f.add(even(job, n))).otherwise(|f| f.add(odd(job, n)))
        });
        f.add(sum(all))
    })
}

pub(crate) fn files() -> Flow<Given, (Port<u64>, Port<File>)> {
    Flow::new("files", ["job", "n"], ["digest", "file"], |f, (job, n)| {
        let file = f.add(make(job, n));
        (f.add(measure(job, file)), file)
    })
}

pub(crate) fn trying() -> Flow<Given, Port<u64>> {
    Flow::new("trying", ["job", "n"], ["result"], |f, (job, n)| {
        let n = f.add(flaky(job, n));
        f.add(bump(job, n))
    })
}

/// Fails at its end, so that all is undone.
pub(crate) fn saga() -> Flow<Given, Port<u64>> {
    Flow::new("saga", ["job", "n"], ["result"], |f, (job, n)| {
        let n = f.add(charge(job, n));
        let n = f.add(reserve(job, n));
        f.add(ship(job, n))
    })
}

/// Goes on for long enough to be cancelled.
pub(crate) fn endless() -> Flow<Given, Port<u64>> {
    Flow::new("endless", ["job", "n"], ["result"], |f, (job, n)| {
        let start = f.add(charge(job, n));
        f.repeat(start, |f, round| {
            let round = f.add(tick(job, round));
            (round, f.add(less(round, 1_000_000)))
        })
    })
}

/// Over a list that is given, so that an element can be changed.
pub(crate) fn sheet() -> Flow<(Port<u64>, Port<Vec<u64>>), Port<u64>> {
    Flow::new("sheet", ["job", "rows"], ["sum"], |f, (job, rows): (Port<u64>, Port<Vec<u64>>)| {
        let squares = f.each(rows, |f, n| f.add(square(job, n)));
        f.add(sum(squares))
    })
}

pub(crate) fn payment() -> Flow<Given, Port<u64>> {
    Flow::new("payment", ["job", "n"], ["result"], |f, (job, n)| {
        let n = f.add(bump(job, n));
        let n = f.add(pay(job, n));
        f.add(bump(job, n))
    })
}
