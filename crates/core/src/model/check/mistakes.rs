//! stub
/// m
#[derive(Debug)]
pub struct Mistake;
/// m
pub type Errors = Vec<Mistake>;
/// w
#[derive(Debug)]
pub struct What;
