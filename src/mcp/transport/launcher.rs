//! Programs that Windows starts only through its shell: `npx` and its like are batch files.
//!
//! The rules are the reference's. Nothing here asks the operating system, so that the rules are
//! tested everywhere; other systems start every program as it is.

/// Launchers that are batch files wherever they are installed.
const BATCH_LAUNCHERS: [&str; 5] = ["npx", "npm", "pnpm", "yarn", "bunx"];
const SHELLS: [&str; 6] = ["cmd", "cmd.exe", "powershell", "powershell.exe", "pwsh", "pwsh.exe"];

/// The program and the arguments that start `command` on Windows. `find` gives the file that a
/// bare name means, `shell` is the command processor.
pub(super) fn windows_command(
    command: &str,
    args: &[String],
    shell: &str,
    find: impl FnOnce(&str) -> Option<String>,
) -> (String, Vec<String>) {
    let plain = || (command.to_owned(), args.to_vec());
    let name = base_name(command);
    if SHELLS.contains(&name.as_str()) || has_extension(&name, &["exe", "com"]) {
        return plain();
    }
    let is_batch = BATCH_LAUNCHERS.contains(&name.as_str())
        || has_extension(&name, &["cmd", "bat"])
        || find(command).is_some_and(|file| has_extension(&base_name(&file), &["cmd", "bat"]));
    if !is_batch {
        return plain();
    }
    let before = ["/d", "/c", command].map(str::to_owned);
    (shell.to_owned(), before.into_iter().chain(args.iter().cloned()).collect())
}

fn base_name(path: &str) -> String {
    path.rsplit(['/', '\\']).next().unwrap_or_default().to_lowercase()
}

fn has_extension(name: &str, extensions: &[&str]) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension))
}

/// The file that a bare name means, by `PATH` and `PATHEXT`.
#[cfg(windows)]
pub(super) fn find(command: &str, path: &std::ffi::OsStr) -> Option<String> {
    let extensions = std::env::var("PATHEXT").unwrap_or_else(|_| ".COM;.EXE;.BAT;.CMD".to_owned());
    for folder in std::env::split_paths(path) {
        for extension in extensions.split(';') {
            let file = folder.join(format!("{command}{extension}"));
            if file.is_file() {
                return Some(file.to_string_lossy().into_owned());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_files_go_through_the_shell_and_programs_do_not() {
        let args = ["-y".to_owned(), "pkg".to_owned()];
        let start = |command: &str, file: Option<&str>| {
            windows_command(command, &args, "cmd.exe", |_| file.map(str::to_owned))
        };
        for (command, file) in [
            ("npx", None),
            ("C:\\node\\NPX.CMD", None),
            ("run.bat", None),
            ("uvx", Some("C:\\tools\\uvx.cmd")),
        ] {
            let (program, given) = start(command, file);
            assert_eq!((program.as_str(), given[..3].join(" ")), ("cmd.exe", format!("/d /c {command}")));
            assert_eq!(given[3..], args);
        }
        for (command, file) in
            [("node", Some("C:\\node\\node.exe")), ("npx.exe", None), ("pwsh", None), ("x", None)]
        {
            assert_eq!(start(command, file), (command.to_owned(), args.to_vec()));
        }
    }
}
