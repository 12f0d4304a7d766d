//! A filter of system calls that refuses to list a folder.
#![allow(clippy::unwrap_used)]

use std::{env, thread};

use pagepool_watch::RunFolder;

use crate::filter::refuse;

#[test]
fn a_folder_that_cannot_be_listed_is_an_error() {
    let folder = env::temp_dir().join(format!("pagepool-listed-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let of = RunFolder::at(&folder);
    let filtered = move || match refuse(libc::SYS_getdents64, None, libc::EIO) {
        Ok(()) => {
            let said = of.processes().remove(0).unwrap_err().to_string();
            assert!(said.starts_with("readdir failed") && of.clean().is_err(), "{said}");
        }
        Err(error) => println!("SKIP: no filter of system calls: {error}"),
    };
    let done = thread::spawn(filtered).join();
    std::fs::remove_dir(&folder).unwrap();
    done.unwrap();
}
