/// Placeholder until the file node lands.
#[derive(Debug)]
pub struct FileNode;
