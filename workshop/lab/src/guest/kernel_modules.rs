//! Which modules a guest loads, and in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::GuestError;

/// By name, with `_` for `-`.
pub(super) struct KernelModules {
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

pub(super) struct LoadedModule {
    pub name: String,
    pub bytes: Vec<u8>,
}

impl KernelModules {
    /// Reads the folder `lib/modules/VERSION`.
    pub fn read(tree: &Path) -> Result<Self, GuestError> {
        let mut files = BTreeMap::new();
        let mut folders = vec![tree.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries =
                fs::read_dir(&folder).map_err(|error| GuestError::file("reading", &folder, &error))?;
            for path in entries.flatten().map(|entry| entry.path()) {
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path);
                } else if let Some(name) = module_name(&path) {
                    files.insert(name, path);
                }
            }
        }
        let builtin = fs::read_to_string(tree.join("modules.builtin")).unwrap_or_default();
        let builtin = builtin.lines().filter_map(|line| module_name(Path::new(line))).collect();
        Ok(Self { files, builtin })
    }

    /// Adds a module after those that it needs. A built-in module adds nothing.
    pub fn add(&self, name: &str, to: &mut Vec<LoadedModule>) -> Result<(), GuestError> {
        let name = name.replace('-', "_");
        if self.builtin.contains(&name) || to.iter().any(|module| module.name == name) {
            return Ok(());
        }
        let file = self.files.get(&name);
        let file = file.ok_or_else(|| GuestError::Failed(format!("this kernel has no module {name}")))?;
        let bytes = unpacked(file)?;
        for need in needs(&bytes) {
            self.add(&need, to)?;
        }
        to.push(LoadedModule { name, bytes });
        Ok(())
    }
}

fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (name, _) = file.split_once(".ko")?;
    Some(name.replace('-', "_"))
}

fn unpacked(file: &Path) -> Result<Vec<u8>, GuestError> {
    let end = file.extension().and_then(|end| end.to_str());
    let tool = match end {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return fs::read(file).map_err(|error| GuestError::file("reading", file, &error)),
    };
    let output = Command::new(tool).arg("-qdc").arg(file).output();
    let output = output.map_err(|error| GuestError::Missing(format!("guests require {tool}: {error}")))?;
    if !output.status.success() {
        return Err(GuestError::Failed(format!("{tool} cannot unpack {}", file.display())));
    }
    Ok(output.stdout)
}

/// From `depends=` in a module's information.
fn needs(bytes: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = bytes.windows(key.len()).position(|window| window == key) else { return Vec::new() };
    let value = bytes[at + key.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let value = String::from_utf8_lossy(value);
    value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp_folder::TempFolder;

    #[test]
    fn needed_modules_come_first_and_once() {
        let folder = TempFolder::new("guest-modules").expect("a temporary folder");
        let tree = folder.path();
        fs::create_dir_all(tree.join("kernel")).expect("a temporary folder");
        for (file, needs) in [("a-x", "b_y,c"), ("b-y", "c"), ("c", ""), ("d", "a-x,whole")] {
            let bytes = format!("x\0depends={needs}\0y");
            fs::write(tree.join(format!("kernel/{file}.ko")), bytes).expect("it is writable");
        }
        fs::write(tree.join("modules.builtin"), "kernel/whole.ko\n").expect("it is writable");
        let modules = KernelModules::read(tree).expect("it is there");
        let mut loaded = Vec::new();
        modules.add("d", &mut loaded).expect("all are there");
        let names: Vec<_> = loaded.iter().map(|module| &*module.name).collect();
        assert_eq!(names, ["c", "b_y", "a_x", "d"]);
        assert!(modules.add("e", &mut loaded).is_err());
    }
}
