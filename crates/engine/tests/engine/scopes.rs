//! Durable scopes: the cases of light ones again, on memory and on a journal, and with a fault at every call of the
//! store.

mod calls;
mod cases;
mod damage;
mod delivered;
mod ending;
mod faults;
mod rig;
