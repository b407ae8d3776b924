"""A good table, and what is wrong with others: text or bytes, named columns, what is said."""

import gzip

GOOD = "slide,label,x,y,area,note\ns2,0,1,2,3.5,a\ns1,1,1,2,4.5,b\ns2,0,3,4,5.5,c\n"

BAD = {
    "missing column": (GOOD, {"bag": "scan"}, "no column 'scan'"),
    "no bag column": ("a,b\n1,2\n", {}, "no column that looks like bag ids"),
    "infinity": (GOOD.replace("4.5", "inf"), {}, r"infinit.*: bag 's1', .*\(line 3\).*'area'"),
    "too many fields": (GOOD.replace("b\n", "b,c\n"), {}, r"line 3: 7 fields.*has 6"),
    "too few fields": (GOOD.replace(",c\n", "\n"), {}, r"line 4: 5 fields"),
    "wrong delimiter": (GOOD.replace(",", ";"), {}, "only one column.*semicolon.*delimiter"),
    "empty file": ("", {}, "is empty"),
    "header only": ("bag,label,a\n", {}, "no rows"),
    "duplicate columns": ("bag,a,a\n1,2,3\n", {}, "column 'a' twice"),
    "duplicate ids": ("bag,instance_id,a\ns,i,1\ns,i,2\n", {}, "repeats the instance id 'i'"),
    "non-UTF-8": (GOOD.encode().replace(b",a\n", b",\xe9\n"), {}, "line 2: not UTF-8.*0xe9"),
    "binary": (b"bag,a\n1,\x00\n", {}, "line 2: not a text table"),
    "label differs": (GOOD.replace("s2,0,3", "s2,1,3"), {}, "inside a bag.*'s2'.*instance.label"),
    "label missing": (GOOD.replace("s1,1", "s1,"), {}, "line 3 has no value in column 'label'"),
    "bag missing": (GOOD.replace("s1", ""), {}, "line 3 has no value in column 'slide'"),
    "text feature": (GOOD, {"features": ("note",)}, "line 2: the feature 'note' must be a number"),
    "no match": (GOOD, {"features": ("z_*",)}, r"matches the features 'z_\*'"),
    "named twice": (GOOD, {"bag": "slide", "label": "slide"}, "'slide' was named twice"),
    "list lengths": ('bag,f\na,"[1,2]"\nb,"[1]"\n', {}, "line 3: 'f' has 1 numbers"),
    "gzip cut": (gzip.compress(GOOD.encode())[:-9], {}, "gzip data is damaged"),
}  # fmt: skip
