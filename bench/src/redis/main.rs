//! A store on Redis against a bare client and one giant script; the rows that finished runs leave.
//!
//! The server is real and syncs every commit. Steps go against the same script driven by a bare client.
//!
//! | module | what it owns |
//! |---|---|
//! | `server` | a private server, and what it tells about itself |
//! | `watched` | records that count calls and keep batches |
//! | `workers` | engines on a server, and chains of steps on them |
//! | `bare` | the same batches sent by a bare client |
//! | `steps`, `cascade`, `left` | the parts |
//! | `giant` | the classic script that follows references in one call |

mod bare;
mod cascade;
mod giant;
mod left;
mod server;
mod steps;
mod watched;
mod workers;

use onceflow_bench::program::{Part, Program};
use std::process::ExitCode;

fn main() -> ExitCode {
    let parts: &[Part] = &[("steps", steps::measure), ("cascade", cascade::measure), ("left", left::measure)];
    Program { name: "redis", parts, children: &[] }.main()
}
