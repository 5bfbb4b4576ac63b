//! Names of types, as plans record them to find out whether state is of the type that a changed pipeline has.

/// The name of a type, without the places of its parts, which may move.
pub(super) fn name_of<T>() -> String {
    let (mut name, mut word) = (String::new(), String::new());
    for letter in std::any::type_name::<T>().chars() {
        match letter {
            ':' => word.clear(),
            letter if letter.is_alphanumeric() || letter == '_' => word.push(letter),
            letter => {
                name.push_str(&std::mem::take(&mut word));
                name.push(letter);
            }
        }
    }
    name + &word
}

/// The name of a generic type without those of its parts.
pub(super) fn outer_name_of<T>() -> String {
    let name = name_of::<T>();
    name.split('<').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_places() {
        assert_eq!(name_of::<(String, Vec<crate::EventTime>)>(), "(String, Vec<EventTime>)");
        assert_eq!(outer_name_of::<crate::combine::TopN<String>>(), "TopN");
    }
}
