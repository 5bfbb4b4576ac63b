//! The cases of values, references and roots (`cases/values.md`), on every backend and with every budget. `fsck` is
//! clean after every operation: the bed sees to that.

#[path = "values/bed.rs"]
mod bed;
#[path = "values/blobs.rs"]
mod blobs;
#[path = "values/cases.rs"]
mod cases;
#[path = "values/crash.rs"]
mod crash;
#[path = "values/damage.rs"]
mod damage;
#[path = "values/gathered.rs"]
mod gathered;
#[path = "values/hold.rs"]
mod hold;
#[path = "values/large.rs"]
mod large;
#[path = "values/leases.rs"]
mod leases;
#[path = "values/map.rs"]
mod map;
#[path = "values/model.rs"]
mod model;
#[path = "values/power.rs"]
mod power;
#[path = "values/races.rs"]
mod races;
#[path = "values/weave.rs"]
mod weave;
