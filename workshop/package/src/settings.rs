//! The settings of both programs.

use std::env;

/// A setting: an argument `NAME=value`, or an environment variable. An empty value is none.
pub fn setting(name: &str) -> Option<String> {
    let argument =
        env::args().skip(1).find_map(|arg| Some(arg.strip_prefix(name)?.strip_prefix('=')?.to_owned()));
    argument.or_else(|| env::var(name).ok()).filter(|value| !value.is_empty())
}

/// Refuses an argument that is no setting.
pub fn check_arguments(known: &[&str]) -> Result<(), String> {
    let is_known = |arg: &String| {
        known.iter().any(|name| arg.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
    };
    match env::args().skip(1).find(|arg| !is_known(arg)) {
        None => Ok(()),
        Some(unknown) => {
            let known: Vec<String> = known.iter().map(|name| format!("{name}=")).collect();
            let (last, others) = known.split_last().expect("a program has settings");
            Err(format!("{unknown}: only {} and {last} are known", others.join(", ")))
        }
    }
}
