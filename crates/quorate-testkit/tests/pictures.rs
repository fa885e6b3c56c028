//! The pictures of the guide are those that the simulation draws. `UPDATE_PICTURES=1` writes them.

use quorate_testkit::pictures::pictures;
use std::{env, fs, path::Path};

#[test]
fn the_pictures_of_the_guide_are_drawn_by_the_simulation() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src/pictures");
    let drawn = pictures();
    assert_eq!(drawn, pictures(), "a story is the same each time");
    for (name, svg) in drawn {
        let path = folder.join(name);
        if env::var_os("UPDATE_PICTURES").is_some() {
            fs::create_dir_all(&folder).expect("the repository");
            fs::write(&path, &svg).expect("the repository");
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == svg, "{name} differs from the simulation: run this test with UPDATE_PICTURES=1");
    }
}
