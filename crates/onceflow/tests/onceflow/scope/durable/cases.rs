//! Scopes that are described once, for both media, and end alike.

use super::{Bed, Outside, durable_end, light_end};
use crate::scope::support::Clock;
use onceflow::scope::{BufferKeep, DurableScope, Provider, Scope, Service, StreamTag, TrimPart};
use onceflow_store::testing::fault::Fault;

/// The stream of the cases.
pub(super) const SEEN: StreamTag<i64> = StreamTag::new("seen");

/// Cases with more calls are disturbed at so many of them only, unless `ONCEFLOW_LONG` asks for all.
const CALLS_MAX: u64 = 60;

/// What the two media say differently: how a request is performed, and what a cleanup flow is given.
pub(super) mod light {
    use super::*;
    use onceflow::scope::{BufferKey, Chain, Light, Scope, ScopeBuilder};

    pub(in super::super) type Builder<I, O> = ScopeBuilder<I, O, Light>;

    pub(in super::super) fn scope<I: Send + 'static, O: Send + 'static>(
        describe: impl FnOnce(&Builder<I, O>),
    ) -> Scope<I, O> {
        Scope::build(describe).unwrap_or_else(|faults| panic!("in memory: {faults}"))
    }

    pub(in super::super) fn act<'s>(
        chain: Chain<'s, i64>,
        (clock, outside): (&Clock, &Outside),
        what: &'static str,
        ms: u64,
    ) -> Chain<'s, i64> {
        let (outside, clock) = (outside.clone(), clock.clone());
        chain
            .map_async(move |v| {
                let (outside, wait) = (outside.clone(), clock.wait(ms));
                async move {
                    wait.await;
                    outside.perform_once(format!("{what} {v}"));
                    v
                }
            })
            .named(what)
    }

    pub(in super::super) fn says(outside: &Outside, what: &'static str) -> Scope<(BufferKey<i64>,), ()> {
        let outside = outside.clone();
        scope(|s| {
            let say = move |(found,): (BufferKey<i64>,)| {
                let mut found = found.drain();
                found.sort_unstable();
                outside.perform_once(format!("{what} {found:?}"));
            };
            s.start().map(say).terminate(s);
        })
    }

    pub(in super::super) fn fails() -> Scope<(BufferKey<i64>,), ()> {
        scope(|s| s.start().map(|_| String::from("broken")).connect(s.cancel()))
    }
}

pub(super) mod durable {
    use super::*;
    use onceflow::scope::{Chain, Durable, DurableScope, Message, Scope, ScopeBuilder};

    pub(in super::super) type Builder<I, O> = ScopeBuilder<I, O, Durable>;

    pub(in super::super) fn scope<I: Message<Durable>, O: Message<Durable>>(
        describe: impl FnOnce(&Builder<I, O>),
    ) -> DurableScope<I, O> {
        Scope::durable(describe).unwrap_or_else(|faults| panic!("durable: {faults}"))
    }

    pub(in super::super) fn act<'s>(
        chain: Chain<'s, i64, Durable>,
        (clock, outside): (&Clock, &Outside),
        what: &'static str,
        ms: u64,
    ) -> Chain<'s, i64, Durable> {
        let (outside, clock) = (outside.clone(), clock.clone());
        chain
            .map_keyed(move |key, v| {
                let (outside, wait) = (outside.clone(), clock.wait(ms));
                async move {
                    wait.await;
                    outside.perform(&key, format!("{what} {v}"));
                    v
                }
            })
            .named(what)
    }

    pub(in super::super) fn says(outside: &Outside, what: &'static str) -> DurableScope<(Vec<i64>,), ()> {
        let outside = outside.clone();
        scope(|s| {
            let say = move |key: String, (mut found,): (Vec<i64>,)| {
                let outside = outside.clone();
                found.sort_unstable();
                async move { outside.perform(&key, format!("{what} {found:?}")) }
            };
            s.start().map_keyed(say).named("say").terminate(s);
        })
    }

    pub(in super::super) fn fails() -> DurableScope<(Vec<i64>,), ()> {
        scope(|s| s.start().map(|_| String::from("broken")).named("break").connect(s.cancel()))
    }
}

/// A case: made for each medium, with the end and everything performed outside.
struct Case {
    name: &'static str,
    in_memory: fn(&Clock, &Outside) -> Scope<i64, String>,
    stored: fn(&Clock, &Outside) -> DurableScope<i64, String>,
    input: i64,
    end: &'static str,
    performed: &'static [&'static str],
}

/// A case from one description.
macro_rules! case {
    ($name:literal, $input:literal, $end:literal, $performed:expr, |$place:ident, $s:ident| $body:block) => {
        Case {
            name: $name,
            in_memory: |clock, outside| {
                use light::*;
                let $place = (clock, outside);
                scope(|$s: &Builder<i64, String>| $body)
            },
            stored: |clock, outside| {
                use durable::*;
                let $place = (clock, outside);
                scope(|$s: &Builder<i64, String>| $body)
            },
            input: $input,
            end: $end,
            performed: $performed,
        }
    };
}

#[allow(clippy::too_many_lines, reason = "a list")]
fn cases() -> Vec<Case> {
    vec![
        case!("cancelled", 3, "cancelled: too small (1 mishaps)", &["cancel [3]", "either [3]"], |place, s| {
            let [kept, also] = ["kept", "also"].map(|name| s.buffer_named(name, BufferKeep::All));
            let [store, more, go] = s.start().fork_clone();
            store.store(kept);
            more.store(also);
            let checked = go.map(|v| if v >= 5 { Ok(v) } else { Err(String::from("too small")) }).named("check");
            let driven = act(checked.cancel_on_err(s), place, "drive", 50);
            driven.map(|v| format!("got {v}")).named("say").terminate(s);
            s.on_cancel("c", (kept,), &says(place.1, "cancel")).unlimited();
            s.on_cleanup("e", (also,), &says(place.1, "either")).unlimited();
            s.on_terminate("t", (kept,), &says(place.1, "terminate")).unlimited();
            s.on_cleanup("bad", (kept,), &fails()).unlimited();
        }),
        case!("ends with a result", 6, "got 6", &["drive 6", "terminate [6]"], |place, s| {
            let kept = s.buffer_named("kept", BufferKeep::All);
            let [store, go] = s.start().fork_clone();
            store.store(kept);
            act(go, place, "drive", 50).map(|v| format!("got {v}")).named("say").terminate(s);
            s.on_terminate("t", (kept,), &says(place.1, "terminate")).unlimited();
            s.on_cancel("c", (kept,), &says(place.1, "cancel")).unlimited();
        }),
        case!(
            "nested scopes and a collection",
            4,
            "[0, 2, 4, 6]",
            &["work 0", "work 1", "work 2", "work 3"],
            |place, s| {
                let inner = scope(|n: &Builder<i64, i64>| {
                    act(n.start(), place, "work", 10).map(|v| v * 2).named("double").terminate(n);
                });
                let each = s.start().map(|n| (0..n).collect::<Vec<i64>>()).named("list").spread();
                let all = each.call(&inner).named("inner").result.collect(1, None).named("all");
                let sorted = all.map(|mut all| {
                    all.sort_unstable();
                    format!("{all:?}")
                });
                sorted.named("sort").terminate(s);
            }
        ),
        case!(
            "parent ends while an uninterruptible scope works",
            4,
            "4",
            &["first 4", "inside 4", "kept [4]"],
            |place, s| {
                let inner = scope(|n: &Builder<i64, i64>| {
                    let kept = n.buffer_named("kept", BufferKeep::All);
                    let [store, go] = n.start().fork_clone();
                    store.store(kept);
                    act(go, place, "inside", 500).terminate(n);
                    n.on_terminate("t", (kept,), &says(place.1, "kept")).unlimited();
                    n.uninterruptible();
                });
                let [nest, first] = s.start().fork_clone();
                nest.call(&inner).named("inner").result.dispose();
                act(first, place, "first", 50).map(|v| v.to_string()).named("say").terminate(s);
            }
        ),
        case!("buffers, gates and functions with access", 2, "7 of [2, 3]", &[], |_place, s| {
            let [a, b] = ["a", "b"].map(|name| s.buffer_named(name, BufferKeep::All));
            let [one, two, check] = s.start().fork_clone();
            one.close_gate(&(b,)).store(a);
            two.map(|v| v + 1).named("more").push(a).map(|()| 5).named("five").store(b);
            check.map_async(|v| async move { v }).named("later").open_gate(&(b,)).store(b);
            let sums = s.listen_with(&(a, b), move |access| {
                let (all, sum) = (access.entries(a), access.entries(b).iter().sum::<i64>());
                (all.len() == 2 && sum == 7).then(|| format!("{sum} of {all:?}"))
            });
            sums.named("sum").dispose_on_none().terminate(s);
        }),
        case!("join and access", 5, "(5, 10) then 5", &[], |_place, s| {
            let [a, b, seen] = ["a", "b", "seen"].map(|name| s.buffer_named(name, BufferKeep::Last(1)));
            let [one, two, three] = s.start().fork_clone();
            one.store(a);
            two.map(|v| v * 2).named("double").store(b);
            three.store(seen);
            let joined = s.join((a, b.by_clone())).named("join");
            let said = joined.access_with(&(seen,), move |pair: (i64, i64), access| {
                format!("{pair:?} then {}", access.pull(seen).unwrap_or_default())
            });
            said.named("say").terminate(s);
        }),
        case!("a task chosen by name", 2, "[1, 12, 24]", &["carry 2"], |place, s| {
            let nested = scope(|n: &Builder<i64, i64>| {
                act(n.start(), place, "carry", 5).map(|v| v + 10).named("more").terminate(n);
            });
            let named = s.start().map(|v| {
                let name = |name: &str, v: i64| (String::from(name), v);
                vec![name("half", v), name("lift", v), name("later", v), name("unknown", v)]
            });
            let chosen = named.named("names").spread().inject_among(
                "task",
                [
                    ("half", Provider::map(|v: i64| v / 2)),
                    ("lift", Provider::scope(&nested)),
                    ("later", Provider::future(|v: i64| async move { v * 12 })),
                ],
            );
            let all = chosen.collect(0, None).named("all").map(|mut all: Vec<i64>| {
                all.sort_unstable();
                format!("{all:?}")
            });
            all.named("sort").terminate(s);
        }),
        case!("streams of tasks and scopes", 3, "6 stream 3 stream 4", &[], |_place, s| {
            let inner = scope(|n: &Builder<i64, i64>| {
                let (result, seen) = n.start().stream_async(|v: i64, out: onceflow::scope::StreamSender<i64, _>| {
                    out.send(v);
                    out.send(v + 1);
                    async move { v * 2 }
                });
                seen.connect(n.stream(SEEN));
                result.named("twice").terminate(n);
            });
            let node = s.start().call(&inner).named("inner");
            node.stream(SEEN).connect(s.stream(SEEN));
            node.result.map(|v| v.to_string()).named("say").terminate(s);
        }),
        case!("a cycle, a filter and a fork", 1, "at 8 after 3", &[], |_place, s| {
            let rounds = s.buffer_named("rounds", BufferKeep::All);
            let (again, chain) = s.junction::<i64>();
            s.start().connect(again);
            let [done, more] = chain.fork_by(|v| usize::from(*v < 8));
            more.access_with(&(rounds,), move |v: i64, access| {
                access.push(rounds, v);
                v * 2
            })
            .named("count")
            .connect(again);
            let said =
                done.access_with(&(rounds,), move |v: i64, access| format!("at {v} after {}", access.len(rounds)));
            said.named("say").terminate(s);
            s.rounds_max(20);
        }),
        case!("options, pairs, lists and maps in parts", 5, "[1, 2, 5, 7, 9]", &[], |_place, s| {
            let all = s.buffer_named("all", BufferKeep::All);
            let (some, none) = s.start().map(|v| (v > 4).then_some((v, Some(7)))).named("option").fork_option();
            none.map(|()| 0).named("none").store(all);
            let (left, right) = some.unzip();
            left.store(all);
            right.dispose_on_none().store(all);
            let taken = s.join(vec![all]).named("take").map(|part: Vec<i64>| part[0]).named("part");
            let listed = taken.collect(0, None).named("parts").map(|mut parts: Vec<i64>| {
                parts.extend([1, 2, 9]);
                parts.sort_unstable();
                parts
            });
            let ([one, two], rest) = listed.named("list").split();
            let back = s.buffer_named("back", BufferKeep::All);
            one.map(|v| vec![v]).named("one").store(back);
            two.map(|v| vec![v]).named("two").store(back);
            rest.store(back);
            let whole = s.listen_with(&(back,), move |access| {
                let mut whole: Vec<i64> = access.entries(back).concat();
                whole.sort_unstable();
                (whole.len() == 5).then(|| format!("{whole:?}"))
            });
            whole.named("whole").dispose_on_none().terminate(s);
        }),
        case!("failures and disposals", 5, "cancelled: told of broken", &[], |_place, s| {
            let broken = s.start().try_map_async(|_| async { Err::<i64, _>("no") }).named("broken");
            let point = broken.point();
            broken.map(|v: i64| v.to_string()).named("never").terminate(s);
            let told = s.disposals(&[point]).named("watch").map(|disposal| format!("told of {}", disposal.at));
            told.named("tell").connect(s.cancel());
        }),
        case!("a trim and a deadline", 5, "cancelled: not done within 100000 ms", &["fast 5"], |place, s| {
            let [slow, fast] = s.start().fork_clone();
            // Longer than hosts are missed for.
            let slow = act(slow, place, "slow", 1_000_000);
            let point = slow.point();
            slow.map(|v| v.to_string()).named("say").terminate(s);
            let trimmed = act(fast, place, "fast", 20).trim(TrimPart::Point(point)).named("trim");
            let never = trimmed.map_async(|_| std::future::pending::<i64>()).named("never");
            never.map(|v| v.to_string()).named("said").terminate(s);
            s.deadline(std::time::Duration::from_secs(100));
        }),
        case!("a service that sees its open orders", 2, "[0, 10]", &[], |_place, s| {
            let service = Service::<i64, i64>::continuous(
                |orders| {
                    for order in orders {
                        let request = *order.request();
                        order.answer(request * 10);
                    }
                },
                None,
            );
            let each = s.start().map(|n| (0..n).collect::<Vec<i64>>()).named("list").spread();
            let all = each.serve(&service).named("service").collect(0, None).named("all");
            let sorted = all.map(|mut all| {
                all.sort_unstable();
                format!("{all:?}")
            });
            sorted.named("say").terminate(s);
        }),
    ]
}

#[tokio::test]
async fn one_description_ends_alike_in_memory_and_in_a_store() {
    for case in cases() {
        let (clock, outside) = (Clock::new(), Outside::default());
        assert_eq!(light_end(&clock, &(case.in_memory)(&clock, &outside), case.input).await, case.end, "{}", case.name);
        assert_eq!(outside.performed(), case.performed, "{} in memory", case.name);
        let (bed, outside) = (Bed::new(), Outside::default());
        let host = bed.host(bed.memory.clone(), &(case.stored)(&bed.clock, &outside));
        let end = bed.clock.until(super::enter(&host, case.input)).await.unwrap();
        assert_eq!(end, case.end, "{} stored", case.name);
        assert_eq!(outside.performed(), case.performed, "{} stored", case.name);
        bed.close(&host).await;
        assert!(bed.memory.state().all().is_empty(), "{}: rows are left", case.name);
    }
}

async fn disturb_everywhere(fault: Fault) {
    let is_long = std::env::var_os("ONCEFLOW_LONG").is_some();
    for case in cases() {
        for n in 1.. {
            let outside = Outside::default();
            let make = |clock: &Clock| (case.stored)(clock, &outside);
            let (end, was_reached) = durable_end(&make, case.input, (n, fault)).await;
            assert_eq!(end, case.end, "{}: {fault:?} at call {n}", case.name);
            assert_eq!(outside.performed(), case.performed, "{}: {fault:?} at call {n}", case.name);
            if !was_reached || (n >= CALLS_MAX && !is_long) {
                break;
            }
        }
    }
}

#[tokio::test]
async fn typed_durable_scope_survives_a_crash_before_every_call() {
    disturb_everywhere(Fault::StopBefore).await;
}

#[tokio::test]
async fn typed_durable_scope_survives_a_crash_after_every_call() {
    disturb_everywhere(Fault::StopAfter).await;
}

#[tokio::test]
async fn typed_durable_scope_survives_every_lost_reply() {
    disturb_everywhere(Fault::LoseReply).await;
}
