#!/usr/bin/env python3
"""Tests check_names.py on pairs of headers that define the same and on pairs that do not, and on the project."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import check_names  # noqa: E402


def write(root, path, text):
    os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
        file.write(text)


class CheckNamesTest(unittest.TestCase):
    def check(self, one, other, namespace="sru::server"):
        """What the check says of two headers with these declarations in one namespace."""
        with tempfile.TemporaryDirectory() as root:
            write(root, "a/a.h", "namespace sru::server {\n%s\n}  // namespace sru::server\n" % one)
            write(root, "b/b.h", "namespace %s {\n%s\n}\n" % (namespace, other))
            return check_names.check(root)

    def test_two_constants_with_different_values(self):
        self.assertEqual(
            self.check("inline constexpr absl::Duration kMemoryRetry = absl::Milliseconds(10);",
                       "struct Before {\n  int member;\n};\n"
                       "inline constexpr absl::Duration kMemoryRetry = absl::Milliseconds(100);"),
            ["b/b.h:5: sru::server::kMemoryRetry is also defined at a/a.h:2"])

    def test_definitions_of_every_kind(self):
        for name, one, other in (
                ("A", "class A {};", "class ABSL_LOCKABLE A final : public B<C> {};"),
                ("A", "template <typename T>\nstruct A { T t; };", "struct [[nodiscard]] A { A(); };"),
                ("A", 'class CAPABILITY("mutex") A {};', "using A = std::vector<int>;"),
                ("A", "enum A { kOne };", "enum class A : int { kOne };"),
                ("A", "typedef int A;", "template <typename T> using A = B<T>;"),
                ("a", "constexpr char a[] = \"b\";", "const std::function<void(int)> a = {};"),
                ("a", "inline thread_local B<1, 2> a;", "inline int a{1};"),
                ("A(int, const B < C , D > &)", "inline int A(int i, const B<C, D>& b = {}) { return 1; }",
                 "inline int A(int, const B<C, D>& other) {\n  if (true) { return 2; }\n  return 3;\n}"),
                ("A(struct B *)", "inline int A(struct B* b) { return 1; }", "inline int A(struct B*) { return 2; }"),
                ("A()< typename T >", "template <typename T>\nauto A() -> T { return {}; }",
                 "template <typename T>\n__attribute__((const)) T A() { return {}; }"),
                ("operator==(A, A)", "inline bool operator==(A a, A b) { return 1; }",
                 "inline bool operator==(A c, A d) { return 0; }")):
            with self.subTest(one):
                self.assertEqual([p.split(" ", 1)[1].split(" is also")[0] for p in self.check(one, other)],
                                 ["sru::server::" + name])

    def test_what_is_no_second_definition(self):
        for one, other in (
                ("class A {};", "class A;\ntemplate <typename T> class A;"),
                ("enum A { kOne };", "enum A : int;"),
                ("inline int a = 1;", "extern int a;"),
                ("inline int A(int a) { return a; }", "int A(int a);\ninline int A(double a) { return 1; }"),
                ("template <typename T> struct A {};", "template <> struct A<int> {};"),
                ("template <typename T> struct A {};", "template <typename T> struct A<B<T>> {};"),
                ("struct A { int b; };", "struct C { int b; struct A {}; };"),
                ("class A {};", "// class A {};\n/* class A {}; */\n#define B \\\n  class A {};"),
                ("class A {};", "namespace { class A {}; }"),
                ("class A {};", "namespace internal { class A {}; }"),
                ("class A {};", 'inline const char* B() { return "class A {"; }\nusing other::A;'),
                ("namespace a = b::c;", "namespace a = b::c;"),
                ("enum { kOne };", "enum { kTwo };"),
                ("int A::B() { return 1; }\nA::A() : b{1} {}", "ABSL_DECLARE_FLAG(int, b);\nint b();")):
            with self.subTest(other):
                self.assertEqual(self.check(one, other), [])

    def test_namespaces_separate_names(self):
        self.assertEqual(self.check("class A {};", "class A {};", "sru::client"), [])
        self.assertEqual(self.check("class A {};", "namespace server { class A {}; }", "sru"),
                         ["b/b.h:2: sru::server::A is also defined at a/a.h:2"])

    def test_one_header_may_choose(self):
        self.assertEqual(self.check("#if B\nclass A {};\n#else\nclass A {};\n#endif", ""), [])

    def test_a_header_that_stands_in_for_another(self):
        stand_in, header = next(iter(check_names.STAND_INS.items()))
        with tempfile.TemporaryDirectory() as root:
            write(root, header, "class A {};\n")
            write(root, stand_in, "class A {};\n")
            self.assertEqual(check_names.check(root), [])

    def test_the_project_has_no_second_definition(self):
        self.assertEqual(check_names.check(ROOT), [])
        self.assertTrue(all(os.path.isfile(os.path.join(ROOT, path))
                            for pair in check_names.STAND_INS.items() for path in pair))

    def test_the_program_exits_with_1_and_prints_what_is_wrong(self):
        with tempfile.TemporaryDirectory() as root:
            write(root, "a.h", "class A {};\n")
            write(root, "b.h", "class A {};\n")
            run = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "scripts", "check_names.py"), root],
                                 stdout=subprocess.PIPE, text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stdout, "b.h:1: ::A is also defined at a.h:1\n")


if __name__ == "__main__":
    unittest.main()
