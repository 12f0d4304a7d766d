//! Both programs answer.

use std::path::Path;

/// How many packets to port 9 were answered beside those to port 7; none where it cannot run.
fn ask(program: &str) -> Option<usize> {
    match lab::echo::ask(Path::new(program), &[]) {
        Ok(others) => Some(others),
        Err(error) if error.is::<lab::Missing>() => {
            println!("SKIP {program}: {error}");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

#[test]
fn tasks_answer_what_a_polling_thread_hands_them() {
    ask(env!("CARGO_BIN_EXE_pagepool-tokio-workers"));
}

#[test]
fn a_forwarder_in_a_task_answers() {
    assert_eq!(ask(env!("CARGO_BIN_EXE_one-thread")).unwrap_or(0), 0, "these are for the kernel");
}
