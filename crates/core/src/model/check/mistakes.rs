//! stub
/// m
#[derive(Debug)]
pub struct Mistake;
/// m
#[derive(Debug)]
pub struct Errors(pub Vec<Mistake>);
impl std::fmt::Display for Errors {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}
impl std::error::Error for Errors {}
/// w
#[derive(Debug)]
pub struct What;
