//! Searching a generated tree of 2,000 files: the walk, a rare match, a match in every file.

#![allow(missing_docs, reason = "criterion's macros write functions without any")]

use std::{fs, hint::black_box, path::Path, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use nanobot_tools::{
    Arguments, CallContext, Tool,
    native::{FindFilesTool, GrepTool, Workspace},
};
use serde_json::{Value, json};

fn write_tree(root: &Path) {
    let lines: Vec<String> = (0..60).map(|i| format!("    let value_{i} = compute({i});\n")).collect();
    let body = lines.concat();
    for directory in 0..50 {
        let directory = root.join(format!("module_{directory:03}"));
        fs::create_dir_all(&directory).expect("a temporary directory is writable");
        for file in 0..40 {
            let rare = if file == 7 { "// TODO rare_needle\n" } else { "" };
            fs::write(directory.join(format!("file_{file:03}.rs")), format!("{rare}{body}"))
                .expect("a temporary directory is writable");
        }
    }
}

fn native(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write_tree(dir.path());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let grep: Arc<dyn Tool> = Arc::new(GrepTool::new(Workspace::bounded(dir.path())));
    let find: Arc<dyn Tool> = Arc::new(FindFilesTool::new(Workspace::bounded(dir.path())));
    let mut bench = |name: &str, tool: &Arc<dyn Tool>, arguments: Value| {
        let Value::Object(arguments) = arguments else { return };
        c.bench_function(name, |b| {
            b.iter(|| {
                let call = Arc::clone(tool).call(Arguments::Json(arguments.clone()), CallContext::default());
                black_box(runtime.block_on(call))
            });
        });
    };
    bench("grep/rare", &grep, json!({"pattern": "rare_needle"}));
    bench("grep/count", &grep, json!({"pattern": r"value_\d+ = compute", "output_mode": "count"}));
    bench(
        "grep/backtracking",
        &grep,
        json!({"pattern": "rare_(?=needle)", "output_mode": "files_with_matches"}),
    );
    bench("find_files/all", &find, json!({"glob": "**/*.rs", "head_limit": 0}));
}

criterion_group!(benches, native);
criterion_main!(benches);
