//! The header is what the source says, and so is the list of exported symbols.

use std::fs;
use std::path::Path;

/// Writes the header as the source has it now.
fn generated() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("the crate's own files");
    let inline = fs::read_to_string(root.join("src/inline.h")).expect("the crate's own files");
    let mut header = Vec::new();
    cbindgen::Builder::new()
        .with_crate(root)
        .with_config(config)
        .generate()
        .expect("the crate's own files")
        .write(&mut header);
    let header = String::from_utf8(header).expect("the crate's own files");
    // The inline part belongs inside the block that C++ sees as C.
    let end = "#ifdef __cplusplus\n}";
    assert_eq!(header.matches(end).count(), 1, "where the C++ block ends");
    header.replace(end, &format!("{inline}\n{end}"))
}

#[test]
fn the_committed_header_is_what_the_source_says() {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/pagepool.h");
    let now = generated();
    if std::env::var_os("PAGEPOOL_BLESS").is_some() {
        return fs::write(at, now).unwrap();
    }
    let committed = fs::read_to_string(&at).unwrap_or_default();
    assert!(
        committed == now,
        "include/pagepool.h is old: PAGEPOOL_BLESS=1 cargo test -p pagepool-capi --test header"
    );
}
