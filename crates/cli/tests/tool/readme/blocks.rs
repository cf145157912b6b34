//! The fenced blocks of a page in Markdown. Pure.

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block<'a> {
    /// What follows the opening fence.
    pub(super) language: &'a str,
    /// The last line of text before the block, which says what the block is.
    pub(super) introduction: &'a str,
    pub(super) lines: Vec<&'a str>,
}

/// A command of a block, and what the page shows of its output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Typed<'a> {
    pub(super) command: &'a str,
    pub(super) output: Vec<&'a str>,
}

const FENCE: &str = "```";
const PROMPT: &str = "$ ";

pub(super) fn blocks(page: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut introduction, mut open) = (Vec::new(), "", None::<Block<'_>>);
    for line in page.lines() {
        match (line.strip_prefix(FENCE), &mut open) {
            (Some(language), None) => {
                open = Some(Block { language, introduction, lines: Vec::new() })
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.lines.push(line),
            (None, None) if line.is_empty() => {}
            (None, None) => introduction = line,
        }
    }
    assert_eq!(open, None, "a block has no end");
    blocks
}

impl<'a> Block<'a> {
    /// The file that the block is: the last name in backticks before it.
    pub(super) fn file(&self) -> &'a str {
        self.introduction
            .rsplit('`')
            .nth(1)
            .unwrap_or_else(|| panic!("no file is named before {self:?}"))
    }

    pub(super) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// What is typed at the prompt. A block without a prompt has nothing to type.
    pub(super) fn typed(&self) -> Vec<Typed<'a>> {
        let mut typed = Vec::<Typed<'_>>::new();
        for line in &self.lines {
            match (line.strip_prefix(PROMPT), typed.last_mut()) {
                (Some(command), _) => typed.push(Typed { command, output: Vec::new() }),
                (None, Some(last)) => last.output.push(line),
                (None, None) => {}
            }
        }
        typed
    }
}

#[test]
fn a_block_has_the_text_before_it_and_its_commands_with_their_output() {
    let page = "Its `name` is in\n`a.toml`:\n\n```toml\na = 1\n\n```\n\nThen\n\n```text\n$ one\n1\n\n2\n$ two\n```\n";
    let blocks = blocks(page);
    assert_eq!(
        (blocks[0].file(), blocks[0].text().as_str(), blocks[0].typed()),
        ("a.toml", "a = 1\n\n", vec![])
    );
    let typed = [("one", vec!["1", "", "2"]), ("two", vec![])]
        .map(|(command, output)| Typed { command, output });
    assert_eq!((blocks[1].introduction, blocks[1].typed()), ("Then", Vec::from(typed)));
}
