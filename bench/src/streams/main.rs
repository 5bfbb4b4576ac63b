//! Streams: the price of exactly once, of stages and of a kill; beside timely, bytewax and Flink.

mod bed;
mod corpus;
mod flat;
mod flink;
mod installed;
mod latency;
mod nexmark;
mod peers;
mod planning;
mod rebuild;
mod shuffle;

use onceflow_bench::program::{Part, Program};
use std::process::ExitCode;

fn main() -> ExitCode {
    let parts: &[Part] = &[
        ("shuffle", shuffle::between_stages),
        ("external", shuffle::external),
        ("fused", planning::fused),
        ("lift", planning::lifted),
        ("timely", peers::timely),
        ("bytewax", peers::bytewax),
        ("flink", flink::measure),
        ("nexmark", nexmark::measure),
        ("latency", latency::measure),
        ("rebuild", rebuild::measure),
        ("flat", flat::measure),
    ];
    Program { name: "streams", parts, children: &[("fill", rebuild::fill), ("count", peers::count_until_killed)] }
        .main()
}
