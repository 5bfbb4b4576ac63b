//! The cases of values, references and roots (`cases/values.md`), on every backend and with every budget. `fsck` is
//! clean after every operation: the bed sees to that.

mod bed;
mod blobs;
mod cases;
mod changes;
mod crash;
mod damage;
mod gathered;
mod hold;
mod large;
mod leases;
mod map;
mod model;
mod power;
mod races;
