//! The session's cookie. Pure.

use super::secret::Token;

/// The value of this cookie in the header of a request. Of several, the first.
pub(super) fn read<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    header.split(';').find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    })
}

/// Scripts cannot read it, and no other site's page can have it sent. It goes when the browser is
/// closed.
pub(super) fn write(name: &str, id: &Token, is_https: bool) -> String {
    let secure = if is_https { "; Secure" } else { "" };
    format!("{name}={}; Path=/; HttpOnly; SameSite=Strict{secure}", id.expose())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        assert_eq!(read("a=1; rehop=2 ; b=3", "rehop"), Some("2"));
        assert_eq!(read("xrehop=1;rehop=", "rehop"), Some(""));
        for header in ["", "rehop", "rehop2=1", ";;", "a=rehop"] {
            assert_eq!(read(header, "rehop"), None, "{header:?}");
        }
    }

    #[test]
    fn a_cookie_is_for_this_site_only_and_for_no_script() {
        let id = Token::random().unwrap();
        let cookie = write("rehop", &id, false);
        assert_eq!(cookie, format!("rehop={}; Path=/; HttpOnly; SameSite=Strict", id.expose()));
        assert_eq!(write("rehop", &id, true), cookie + "; Secure");
    }
}
