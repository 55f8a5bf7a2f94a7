//! The page of `log --format html` in a real browser: on a phone, a laptop and a wide screen, light, dark and printed.
//! Pictures of all are in target/page.

use crate::commands::pictures::{
    HOUR, MINUTE, MORNING, at, daily, failed, hostile, incidents, log, night, ok, run, set,
};
use crate::support::{Browser, Directory, Redis, any, redlock};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const WIDTHS: [u32; 3] = [380, 1_000, 1_400];
/// The medium, and the colours that the reader prefers.
const LOOKS: [(&str, &str); 3] = [("screen", "light"), ("screen", "dark"), ("print", "light")];

/// The faults of the page in a window of WIDTH pixels, as texts.
const FAULTS: &str = r#"(() => {
    const faults = [], root = document.documentElement, all = [...document.querySelectorAll('*')];
    const style = element => getComputedStyle(element);
    if (root.scrollWidth > WIDTH) faults.push(`sideways scroll: ${root.scrollWidth} px`);
    for (const element of all) {
        const scrolls = /auto|scroll/.test(style(element).overflowX) && element.scrollWidth > element.clientWidth;
        if (scrolls) faults.push(`sideways scroll of ${element.tagName}`);
        for (const { name } of element.attributes) if (name.startsWith('on')) faults.push(`script in ${name}`);
    }
    if (document.scripts.length > 0) faults.push('script');
    for (const row of document.querySelectorAll('tbody tr')) {
        const end = row.lastElementChild, { left, right, width } = end.getBoundingClientRect();
        if (!(width > 0 && left >= 0 && right <= WIDTH)) faults.push(`end out of sight: ${end.textContent}`);
    }
    const channels = color => color.match(/[\d.]+/g).map(Number);
    const luminance = color => {
        const [r, g, b] = channels(color).map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = element => {
        for (let one = element; one; one = one.parentElement) {
            const color = style(one).backgroundColor;
            if ((channels(color)[3] ?? 1) > 0) return color;
        }
        return 'rgb(255, 255, 255)';
    };
    const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), range = document.createRange();
    while (texts.nextNode()) {
        const node = texts.currentNode, parent = node.parentElement;
        range.selectNodeContents(node);
        if (!node.data.trim() || range.getClientRects().length === 0) continue;
        const { color, fill, stroke } = style(parent), isDrawn = parent instanceof SVGElement;
        const [front, back] = isDrawn ? [fill, stroke === 'none' ? behind(parent) : stroke] : [color, behind(parent)];
        const [dark, light] = [luminance(front), luminance(back)].sort((one, other) => one - other);
        const contrast = (light + 0.05) / (dark + 0.05);
        if (contrast < 4.5) faults.push(`contrast ${contrast.toFixed(2)}: ${node.data.trim()}`);
    }
    return [...new Set(faults)];
})()"#;

/// Servers without runs, with a day's, with much that `check` finds, with forty locks and 1,000 runs, and with names that
/// are long, from right to left, or hostile; and that of README.
fn servers() -> [(&'static str, Redis); 8] {
    let many = at(MORNING);
    for lock in 0..40 {
        let run = |at: i64| {
            let (end, host) = (if (at + lock) % 9 == 0 { failed() } else { ok() }, format!("web-{}", at % 3));
            run(&host, "nightly", MORNING - at * 50 * MINUTE - lock * MINUTE, (lock + 1) * MINUTE / 2, 5_000, &end)
        };
        log(&many, &format!("job-{lock}"), &(1..26).rev().map(run).collect::<Vec<_>>());
    }
    let named = |names: &[String]| {
        let redis = at(MORNING);
        for (hour, name) in (1..).zip(names) {
            let host: String = name.chars().take(60).collect();
            let revoked = json!({"o": "revoked", "y": "x".repeat(100)});
            let ends = [ok(), failed(), revoked];
            let runs = (1..).zip(&ends).map(|(at, end)| {
                run(&host, &host[..host.len().min(40)], MORNING - at * hour * HOUR, HOUR / 3, HOUR / 4, end)
            });
            log(&redis, name, &runs.collect::<Vec<_>>());
            // Held, and expected though it has not run.
            redlock(&redis, "acquire -q --ttl 10m").arg(format!("held {name}")).stdout(any()).run();
            daily(
                &redis,
                &format!("late {name}"),
                &[&host],
                53 * HOUR,
                &[run(&host, "x", MORNING - 53 * HOUR, 5, 0, &ok())],
            );
        }
        redis
    };
    let long =
        ["x".repeat(500), "a long name ".repeat(42)[..500].to_owned(), "a-long-name-".repeat(42)[..500].to_owned()];
    let right_to_left = ["\u{5d2}\u{5d9}\u{5d1}\u{5d5}\u{5d9}", "\u{646}\u{633}\u{62e} \u{627}\u{62d}\u{62a}\u{64a}"]
        .map(str::to_owned);
    [
        ("none", at(MORNING)),
        ("day", night()),
        ("incidents", incidents()),
        ("many", many),
        ("long", named(&long)),
        ("right-to-left", named(&right_to_left)),
        ("hostile", hostile()),
        ("readme", readme()),
    ]
}

/// Four jobs of a few hosts: one has failed on a host, one has not run for two days, one goes on.
fn readme() -> Redis {
    let redis = at(MORNING - 70 * MINUTE);
    redlock(&redis, "acquire -q deploy --ttl 2h --label release-41").on_host("ci-7").stdout(any()).run();
    set(&redis, MORNING);
    let nights = |host: &str, label: &str, ago: i64, lasted: i64| {
        let nights = (0..4).rev().map(|night| MORNING - ago - night * 24 * HOUR);
        nights.map(|began| run(host, label, began, lasted, 0, &ok())).collect::<Vec<_>>()
    };
    let three = 4 * HOUR + 30 * MINUTE;
    let mut backup = nights("web-3", "nightly", three + 24 * HOUR, 100 * MINUTE);
    backup.push(run("web-1", "nightly", MORNING - three, 42 * MINUTE, 0, &failed()));
    backup.push(run("web-2", "nightly", MORNING - three + 42 * MINUTE, 100 * MINUTE, 42 * MINUTE, &ok()));
    daily(&redis, "backup", &["web-1", "web-2", "web-3"], three, &backup);
    let dump = nights("db-1", "pg-dump", three + 48 * HOUR, 20 * MINUTE);
    daily(&redis, "dump", &["db-1"], three + 48 * HOUR, &dump);
    let report = nights("web-2", "report", 90 * MINUTE, 12 * MINUTE);
    daily(&redis, "report", &["web-2", "web-1"], 90 * MINUTE, &report);
    for (name, every, lasted) in [("mails-2", 60, 6), ("mails-10", 90, 9)] {
        let began = (0..24 * 60 / every).rev().map(|at| MORNING - at * every * MINUTE - 20 * MINUTE);
        let host = |at: i64| format!("web-{}", 1 + at / MINUTE % 3);
        let sent = began.map(|at| run(&host(at / every), "mails", at, lasted * MINUTE, 0, &ok()));
        log(&redis, name, &sent.collect::<Vec<_>>());
    }
    redis
}

/// Of this page in a window of `width` pixels. Saves a picture of it.
#[track_caller]
fn faults(browser: &mut Browser, page: &Path, width: u32, (medium, scheme): (&str, &str)) -> Vec<String> {
    let height = if page.ends_with("readme.html") { 660 } else { 900 };
    let window = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
    browser.call("Emulation.setDeviceMetricsOverride", window);
    let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
    browser.call("Emulation.setEmulatedMedia", json!({"media": medium, "features": features}));
    let requests = browser.load(page);
    let found = browser.evaluate(&FAULTS.replace("WIDTH", &width.to_string()));
    let mut faults: Vec<String> =
        found.as_array().unwrap().iter().map(|fault| fault.as_str().unwrap().to_owned()).collect();
    faults.extend(requests.iter().skip(1).map(|address| format!("request: {address}")));
    let picture = browser.call("Page.captureScreenshot", json!({}));
    save(
        &picture["data"],
        &page.with_file_name(format!("{}-{width}-{medium}-{scheme}.png", page.file_stem().unwrap().display())),
    );
    faults
}

/// Saves a picture, which is in base64.
fn save(picture: &Value, file: &Path) {
    let encoded = file.with_extension("base64");
    fs::write(&encoded, picture.as_str().unwrap()).unwrap();
    let decoded = Command::new("base64").arg("-d").arg(&encoded).output().unwrap();
    assert!(decoded.status.success());
    fs::write(file, decoded.stdout).unwrap();
    fs::remove_file(encoded).unwrap();
}

/// Where the pages and their pictures are left.
fn gallery() -> PathBuf {
    let gallery = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/page");
    fs::create_dir_all(&gallery).unwrap();
    gallery
}

#[test]
#[ignore = "make check-page runs it"]
fn the_page_fits_each_window_and_every_text_can_be_read() {
    let (directory, gallery) = (Directory::new(), gallery());
    let mut browser = Browser::start(directory.path());
    let mut found = Vec::new();
    for (name, redis) in servers() {
        let page = redlock(&redis, "log --format html -v").env("TZ", "UTC").stdout(any()).stderr(any()).run().stdout;
        let file = gallery.join(name).with_extension("html");
        fs::write(&file, page).unwrap();
        for width in WIDTHS {
            for look in LOOKS {
                let faults = faults(&mut browser, &file, width, look);
                found.extend(faults.into_iter().map(|fault| format!("{name}, {width} px, {look:?}: {fault}")));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Each fault, in a page that has it.
#[test]
#[ignore = "make check-page runs it"]
fn each_fault_of_a_page_is_found() {
    let (directory, gallery) = (Directory::new(), gallery());
    let mut browser = Browser::start(directory.path());
    let file = gallery.join("faulty.html");
    let row = "<table><tbody><tr><td>x<td>exit 1</table>";
    for (page, fault) in [
        ("<p style='width:500px'>x", "sideways scroll: "),
        ("<div style='overflow-x:auto'><p style='width:500px'>x</div>", "sideways scroll of DIV"),
        ("<p onclick='x'>x", "script in onclick"),
        ("<script></script>", "script"),
        ("<img src='x.png'>", "request: file://"),
        (&format!("<style>td{{padding-left:300px}}</style>{row}"), "end out of sight: exit 1"),
        (&format!("<style>td+td{{display:none}}</style>{row}"), "end out of sight: exit 1"),
        ("<p style='color:#777'>pale", "contrast 4.48: pale"),
        ("<p style='background:#000'>dark", "contrast 1.00: dark"),
        ("<svg><text y='9' style='fill:#fff'>white</text></svg>", "contrast 1.00: white"),
    ] {
        fs::write(&file, format!("<!doctype html><meta name='viewport' content='width=device-width'>{page}")).unwrap();
        let found = faults(&mut browser, &file, 380, LOOKS[0]);
        assert!(found.iter().any(|found| found.starts_with(fault)), "{page}: {found:?}");
    }
    fs::write(&file, format!("<!doctype html><meta name='viewport' content='width=device-width'>{row}")).unwrap();
    assert_eq!(faults(&mut browser, &file, 380, LOOKS[0]), Vec::<String>::new());
}
