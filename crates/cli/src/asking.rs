//! Asks for confirmation before a change that cannot be undone, if a person is at the terminal. Scripts are never
//! asked, and no command waits for an answer that cannot come.

use crate::{args::Sure, exit::Exit, printer::Printer};
use std::io::{BufRead, IsTerminal};

/// The change is confirmed: no person is there to ask, or the person said yes.
pub(crate) fn may(printer: &Printer, sure: Sure, what: &str) -> bool {
    let is_asked = !sure.yes && !printer.json && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !is_asked {
        return true;
    }
    printer.warn(format!("{what}? Type `yes` to go on (--yes does not ask):"));
    let mut answer = String::new();
    // End of input is not an answer.
    let read = std::io::stdin().lock().read_line(&mut answer).unwrap_or(0);
    read > 0 && is_yes(&answer)
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Reports that nothing was changed.
pub(crate) fn left_alone(printer: &Printer) -> Exit {
    printer.say("nothing was changed");
    Exit::No
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        assert!(["y", "yes\n", " YES "].into_iter().all(is_yes));
        assert!(!["", "\n", "n", "yes please", "no"].into_iter().any(is_yes));
    }
}
