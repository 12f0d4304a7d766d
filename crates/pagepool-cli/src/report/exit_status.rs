//! With which status a command ends.

/// An interface of the run went away.
pub const GONE: u8 = 3;
/// Standard output could not be written.
pub const OUTPUT: u8 = 4;

/// The list of them all, in the help.
pub const HELP: &str = "\
Exit status:
  0      The verdict is PASS, or the command did its work
  1      The verdict is FAIL, or the command was refused; standard error says why
  2      The arguments are wrong
  3      An interface was removed, or moved to another network namespace, while the command
         ran; the verdict was printed
  4      Standard output could not be written; the run ended in order
  128+N  A second signal N (SIGINT 2, SIGTERM 15) ended the process at once, without a verdict";
