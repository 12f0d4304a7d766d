//! The exit statuses of a command.

/// The run failed, or could not print its results.
pub const FAILED: u8 = 1;
/// No packets moved, so a run without a failure proves nothing.
pub const NOTHING_MOVED: u8 = 3;
/// An interface of the run was removed; nothing else failed.
pub const GONE: u8 = 4;
/// `doctor` found something.
pub const FOUND: u8 = 5;
/// `doctor` found nothing, but could not judge everything.
pub const NOT_JUDGED: u8 = 6;

/// For the help.
pub const HELP: &str = "\
Exit status:
  0      The verdict is PASS, or the command did its work
  1      The verdict is FAIL, the command was refused, or its results could not be written;
         standard error says why
  2      The arguments are wrong
  3      No packets moved, so there is nothing to judge; all buffers were returned
  4      The verdict is GONE: an interface was removed, or moved to another network namespace,
         while the command ran
  5      doctor found something
  6      doctor found nothing, but could not judge everything; it says what it could not judge
  128+N  A second signal N (SIGINT 2, SIGTERM 15) ended the process at once, without a verdict
  If the reader of a pipe exits, the run ends early, with the exit status of its verdict";
