"""Random HTML and XML before and after translation, as Python's own parsers (expat, html.parser) read them.

    markup_test.py TRANSLATE_WORDS SRU_SERVER MODELS

Well-formed documents stay so. Every element and comment is there again, within the same elements; only text outside of what is left alone has
changed. The words that the model is given are those that the documents are made of. A translation that keeps the order of its words keeps
the order of all else, and each space. TRANSLATE_WORDS (translate_words.cc) moves, drops and repeats words; a translator of the server follows.
"""

import html.parser
import json
import os
import random
import re
import shutil
import string
import subprocess
import sys
import tempfile
import unittest
import urllib.request
import xml.parsers.expat

PROGRAM, SERVER, MODELS = sys.argv[1:4]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testing"))
from sru_server import SruServer  # noqa: E402

MODES = [mode + suffix for mode in ("keep", "reverse", "drop", "twice", "none") for suffix in ("", "_pieces")]
DOCUMENTS = 60  # of each form and mode
SERVED = 30  # of each form
WORDS = "a dog cat man runs sees the little unbelievable caf\u00e9 in snow and over house".split()
OPAQUE = ("keep", "code", "svg", "script", "rt", "rp", "img", "input", "wbr", "br", "my-icon")
VOID = ("img", "input", "wbr")
CAPITALS = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
# In what a maker notes: an end tag, a start tag, something that parts words, and one that ends a sentence.
END, START, PARTS, BLOCK = "\x01\x02\x03\x04"


class Maker:
    """A random document: `prolog` + `text`. `words`: what the model is to read of it."""

    def __init__(self, seed, form):
        self.random = random.Random("%s %d" % (form, seed))
        self.is_xml = form == "xml"
        self.ids = 0
        self.parts = []
        self.notes = []
        self.prolog = self.choose("", "<!DOCTYPE d [\n<!-- ]> ' -->\n<!ENTITY foo \"x]>y\">\n<?p ']>' ?>\n]>\n")
        if self.is_xml:
            self.prolog = "<?xml version='1.0'?>" + (self.prolog or '<!DOCTYPE d SYSTEM "]>" [<!ENTITY foo "">]>')
        self.element("d" if self.is_xml else "div", self.blocks, BLOCK, BLOCK)
        self.text = "".join(self.parts)
        self.words = self.read("".join(self.notes))

    @staticmethod
    def read(notes):
        notes = re.sub("%s(?=%s)" % (END, START), PARTS, notes)
        notes = re.sub("[%s%s]" % (START, END), "", notes).replace(BLOCK, " ")
        notes = re.sub("(?<=[^ ])%s+(?=[^ .,])" % PARTS, " ", notes)
        return [word for word in notes.replace(PARTS, "").split() if word.strip("&<.,")]

    def choose(self, *choices):
        return self.random.choice(choices)

    def id(self):
        self.ids += 1
        return "id='%d'" % self.ids

    def add(self, markup, note):
        self.parts.append(markup)
        self.notes.append(note)

    def say(self, text):
        self.add(text, text)

    def element(self, name, content, start=START, end=END):
        if not self.is_xml and self.random.random() < 0.1:
            name = name.upper()
        self.add("<%s %s%s>" % (name, self.id(), self.choose("", ' href="#a>b"')), start)
        notes = len(self.notes)
        content()
        is_empty = end == END and not re.search("[^%s]" % (START + END + PARTS), "".join(self.notes[notes:]))
        self.add("</%s>" % name, PARTS if is_empty else end)

    def blocks(self):
        for _ in range(self.random.randint(1, 4)):
            self.element("p" if self.is_xml else self.choose("p", "div", "li"), self.sentences, BLOCK, BLOCK)

    def thing(self):
        """What has no text of its own."""
        empty = self.choose("i", "span")
        parting = ["<%s %s></%s>" % (empty, self.id(), empty), "&foo;"]
        if self.is_xml:
            parting += ["<br %s/>" % self.id(), "<keep %s>dog <b>runs</b></keep>" % self.id()]
            parting += ["<?php if (2 > %d) { dog(); } ?>" % self.ids, "<![CDATA[dog <b> %d]]>" % self.ids]
        else:
            parting += ["<img %s alt='a dog'>" % self.id(), "<input %s>" % self.id(), "<my-icon %s></my-icon>" % self.id()]
            parting += ["<code %s>dog <b>runs</b></code>" % self.id(), "<svg %s><path d='1'/>dog</svg>" % self.id()]
        joining = ["<!-- dog %d -->" % self.ids]
        if not self.is_xml:
            joining += ["<wbr %s>" % self.id(), "<script %s>dog('</b>')</script>" % self.id()]
        if self.random.random() < 0.7:
            self.add(self.choose(*parting), PARTS)
        else:
            self.add(self.choose(*joining), "")

    def split_word(self):
        word = self.choose("skateboard", "unbelievable")
        begin = self.random.randint(1, 5)
        end = self.random.randint(begin + 1, len(word))
        self.say(" " + word[:begin])
        self.element("b", lambda: self.say(word[begin:end]))
        self.say(word[end:] + " ")

    def ruby(self):
        self.say("dog")
        self.add("<rp %s>(</rp><rt %s>inu</rt><rp %s>)</rp>" % (self.id(), self.id(), self.id()), "")

    def sentences(self, depth=0):
        for _ in range(self.random.randint(1, 5)):
            kind = self.random.random() if depth < 4 else 0
            if kind < 0.5:
                self.say(" ".join(self.choose(*WORDS) for _ in range(self.random.randint(1, 4))))
                self.say(self.choose("", "", " ", ", ", ". "))
            elif kind < 0.57:
                self.split_word()
            elif kind < 0.6 and not self.is_xml:
                self.element("ruby", self.ruby, "")
            elif kind < 0.63:
                self.add(*self.choose(("&amp;", "&"), ("&lt;", "<")))
            elif kind < 0.8:
                self.thing()
            else:
                self.element(self.choose("a", "b", "em", "span"), lambda: self.sentences(depth + 1))


class Reader:
    """What a parser tells. `found`: (what, the ids around it) in their order; `text`: outside of what is left alone."""

    def __init__(self):
        self.found = []
        self.text = ""
        self.marked = ""  # the text, with PARTS for all that stands in it
        self.inside = []
        self.opaque = []  # open elements of what is left alone
        self.content = ""

    def start(self, name, attributes):
        self.marked += PARTS
        if self.opaque or name in OPAQUE:
            self.opaque.append(name)
            self.content += "<%s %s>" % (name, attributes)
            if name in VOID:
                self.end(name)
            return
        self.found.append(("element", attributes["id"], str(attributes), tuple(self.inside)))
        self.inside.append(attributes["id"])

    def end(self, name):
        self.marked += PARTS
        if not self.opaque:
            self.inside.pop()
            return
        assert self.opaque.pop() == name, name
        self.content += "</%s>" % name
        if not self.opaque:
            self.raw(self.content)
            self.content = ""

    def raw(self, what):
        self.marked += PARTS
        if self.opaque:
            self.content += what
        else:
            self.found.append(("raw", what, tuple(self.inside)))

    def say(self, text):
        if self.opaque:
            self.content += text
        else:
            self.text += text
            self.marked += text


def read_xml(text):
    reader = Reader()
    parser = xml.parsers.expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CommentHandler = lambda comment: reader.raw("<!--" + comment) if reader.inside else None
    parser.ProcessingInstructionHandler = lambda target, data: reader.raw(target + " " + data) if reader.inside else None
    parser.CharacterDataHandler = reader.say
    parser.StartCdataSectionHandler = lambda: reader.start("keep", {})
    parser.EndCdataSectionHandler = lambda: reader.end("keep")
    parser.DefaultHandler = lambda data: reader.raw(data) if data.startswith("&") else None
    parser.Parse(text, True)
    return reader


class HtmlReader(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=False)
        self.reader = Reader()
        self.open = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        self.reader.start(tag, dict(attributes))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
        self.reader.end(tag)

    def handle_data(self, data):
        self.reader.say(data)

    def handle_comment(self, data):
        self.reader.raw("<!--" + data)

    def handle_entityref(self, name):
        if name in ("amp", "lt", "gt"):
            self.reader.say(html.unescape("&%s;" % name))
        else:
            self.reader.raw("&%s;" % name)


def read(form, prolog, text):
    assert text.startswith(prolog), "the prolog has changed"
    return read_xml(text) if form == "xml" else HtmlReader(text[len(prolog) :]).reader


def once(found):
    return list(dict.fromkeys(found))


class MarkupTest(unittest.TestCase):
    def check(self, form, maker, after):
        source = maker.prolog + maker.text
        old = read(form, maker.prolog, source)
        try:
            new = read(form, maker.prolog, after)
        except Exception as error:  # of a parser
            self.fail("%s: %s" % (type(error).__name__, error))
        self.assertEqual(sorted(once(old.found)), sorted(once(new.found)))
        raws = [[item for item in reader.found if item[0] == "raw"] for reader in (old, new)]
        self.assertEqual(sorted(raws[0]), sorted(raws[1]))
        for name in set(re.findall("</?[A-Z]+", after)):
            self.assertIn(name, source)
        return old, new

    def check_words(self, form, mode, maker, after, units):
        old, new = self.check(form, maker, after)
        self.assertEqual([word for unit in units for word in unit.split() if word.strip("&<.,")], maker.words)
        if mode.startswith("keep"):
            self.assertEqual(" ".join(old.text.translate(CAPITALS).split()), " ".join(new.text.split()))
            self.assertEqual(*([item for item in once(reader.found) if item[0] == "element"] for reader in (old, new)))
        words = {word.translate(CAPITALS).strip("&<.,") for word in maker.words}
        self.assertLessEqual({word.strip("&<.,") for word in re.split(r"[\s%s]+" % PARTS, new.marked)} - {""}, words)

    def test_words(self):
        for form in ("xml", "html"):
            jobs = [(mode, Maker(seed, form)) for seed in range(DOCUMENTS) for mode in MODES]
            request = b""
            for mode, maker in jobs:
                text = (maker.prolog + maker.text).encode()
                request += b"%s %s %d\n%s" % (form.encode(), mode.encode(), len(text), text)
            answer = subprocess.run([PROGRAM], input=request, stdout=subprocess.PIPE, check=True).stdout
            at = 0

            def line():
                nonlocal at
                begin, at = at, answer.index(b"\n", at) + 1
                return int(answer[begin:at])

            def text():
                nonlocal at
                size = line()
                at += size
                return answer[at - size : at].decode()

            for mode, maker in jobs:
                after = text()
                units = [text() for _ in range(line())]
                with self.subTest(form=form, mode=mode, source=maker.text, after=after, units=units):
                    self.check_words(form, mode, maker, after, units)

    def test_server(self):
        """A small translator of random weights."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "en_de", "1")
            shutil.copytree(os.path.join(MODELS, "old_translator", "1"), path)
            with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            config["translator"].update(source_language="en", target_language="de")
            with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
                json.dump(config, file)
            flags = ["--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", "--http_listen=127.0.0.1:0"]
            with SruServer([SERVER, "--model_repository=" + directory, *flags]) as server:
                for form in ("xml", "html"):
                    makers = [Maker(seed, form) for seed in range(SERVED)]
                    for maker, after in zip(makers, self.translate(server.port_of("HTTP"), form, makers)):
                        with self.subTest(form=form, source=maker.text, after=after):
                            self.check(form, maker, after)

    @staticmethod
    def translate(port, form, makers):
        body = {"text": [maker.prolog + maker.text for maker in makers], "source_lang": "EN", "target_lang": "DE"}
        body.update(tag_handling=form, ignore_tags=["keep"])
        if form == "xml":
            body["non_splitting_tags"] = ["a", "b", "br", "em", "i", "span"]
        url = "http://127.0.0.1:%d/v2/translate" % port
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return [one["text"] for one in json.load(answer)["translations"]]


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
