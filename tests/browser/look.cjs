// Pages in a headless browser: a picture of each at several widths in both modes, and what axe-core says of it.
//   node look.cjs AXE_FILE PUPPETEER_FOLDER BROWSER OUTPUT PAGE...
// Prints JSON: for each page, mode and width the faults, and by how many pixels the page is wider than the screen.
const fs = require("fs");
const path = require("path");

const [axeFile, puppeteerFolder, browserFile, output, ...pages] = process.argv.slice(2);
const puppeteer = require(puppeteerFolder);
const WIDTHS = [400, 800, 1280];

(async () => {
  const browser = await puppeteer.launch({
    executablePath: browserFile, headless: true, args: ["--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"],
  });
  const axe = fs.readFileSync(axeFile, "utf8");
  const found = [];
  for (const address of pages) {
    for (const mode of ["light", "dark"]) {
      for (const width of WIDTHS) {
        const page = await browser.newPage();
        await page.setViewport({ width, height: 900 });
        await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: mode }]);
        await page.goto(address, { waitUntil: "load", timeout: 60000 });
        const name = `${address.replace(/.*\/\/[^/]*\/?/, "").replace(/\W+/g, "_").slice(-60)}_${mode}_${width}.png`;
        await page.screenshot({ path: path.join(output, name), fullPage: true });
        const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        await page.evaluate(axe);
        const told = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
        found.push({ address, mode, width, over, picture: name, faults: told.violations.map((one) => ({
          id: one.id, impact: one.impact, help: one.help, where: one.nodes.slice(0, 3).map((node) => node.target.join(" ")),
          why: one.nodes.length ? one.nodes[0].failureSummary : "", count: one.nodes.length })) });
        await page.close();
      }
    }
  }
  await browser.close();
  console.log(JSON.stringify(found, null, 1));
})().catch((error) => { console.error(error); process.exit(1); });
