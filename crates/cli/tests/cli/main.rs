//! Tests of the command as its users meet it, one file per subject. One binary, so that it is linked once.

mod book;
mod chaos;
mod collecting;
mod damage;
mod doctor;
mod examples;
mod genome;
mod hostile;
mod machines;
mod paged;
mod pages;
mod pictures;
mod plain;
mod readme;
mod rest;
mod run;
mod saga;
mod settings;
mod shared;
mod streams;
mod support;
mod tool;
mod verbs;
mod versions;
mod workers;
mod wrong;
